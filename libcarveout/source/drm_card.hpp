#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "source/dma_buf.hpp"

namespace carveout {

// How a card is asked; the tests put a card of their own in the kernel's place.
struct DrmCalls {
  dma_buf::Ioctl ioctl;  // as drmIoctl(): interrupted calls are repeated
  // Whether a monitor is connected and a picture is being shown: 1, 0, or -1 and errno.
  int (*shows_picture)(int descriptor);
  std::string devices = "/dev/dri";        // where the cards are
  std::string modules = "/sys/module";     // where drivers show their parameters
  std::string control = "/dev/nvidiactl";  // NVIDIA's, for export_nvidia()
};
DrmCalls kernel_drm_calls();

// A dumb buffer: memory of the card's, laid out as `height` rows of `pitch` bytes.
struct DumbBuffer {
  std::uint32_t handle = 0;
  std::uint32_t pitch = 0;
  Bytes size;
};

// A card's primary node, of which we are not the master.
class DrmCard {
 public:
  // Errors, each with its remedy: kNotFound, kSystem (not allowed), kInvalid (not a card, a render
  // node).
  static Result<DrmCard> open(const DrmCalls& calls, const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& driver() const { return driver_; }  // "nvidia-drm", "vkms", ...

  // Whether a monitor is connected and a picture is being shown.
  [[nodiscard]] Result<bool> is_lit() const;

  // Errors: kExhausted when the card has no such memory, kInvalid for a size that it cannot lay
  // out, kSystem; ENOSYS is explained.
  Result<DumbBuffer> create_dumb(Bytes size) const;
  void destroy_dumb(std::uint32_t handle) const;

  // The buffer as a dma-buf that can be written.
  Result<UniqueFd> export_dma_buf(std::uint32_t handle) const;
  // The handle of a dma-buf that this card has exported; to be closed by close_handle().
  Result<std::uint32_t> import_dma_buf(int descriptor) const;
  void close_handle(std::uint32_t handle) const;
  // The buffer's memory attached to a fresh descriptor of NVIDIA's control device, as CUDA exports
  // its own (DRM_IOCTL_NVIDIA_GEM_EXPORT_NVKMS_MEMORY). Only nvidia-drm knows it.
  Result<UniqueFd> export_nvidia(std::uint32_t handle) const;

 private:
  DrmCard(const DrmCalls& calls, std::string path, UniqueFd card)
      : calls_(calls), path_(std::move(path)), card_(std::move(card)) {}
  [[nodiscard]] Error refused(int problem, Bytes size) const;
  [[nodiscard]] Error explain(int problem, std::string_view what) const;

  DrmCalls calls_;
  std::string path_;
  UniqueFd card_;
  std::string driver_;
};

// What `auto` found, and what it passed over and why.
struct CardChoice {
  DrmCard card;
  std::vector<std::string> passed_over;
};
// nvidia-drm where there is one, else the first card that gives dumb buffers. The error names every
// card and what was wrong with it.
Result<CardChoice> choose_card(const DrmCalls& calls);

}  // namespace carveout
