#pragma once

// Cards in the kernel's place, through DrmCalls. They keep books, so that a test can say that
// nothing is left, and refuse when they are told to.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/unique_fd.hpp"
#include "source/drm_card.hpp"
#include "unit/helpers.hpp"

struct drm_mode_create_dumb;
struct drm_prime_handle;
struct drm_version;

namespace carveout::test {

// DRM_IOCTL_NVIDIA_GEM_EXPORT_NVKMS_MEMORY: read and written, 24 bytes, 'd', 0x40 + 0x09.
inline constexpr unsigned long kNvkmsExportRequest = 0xC0186449;

// How a card's memory shows in the host's MemAvailable.
enum class Memory { kReserved, kTakenAtOnce, kTakenWhenTouched };

struct FakeCard {
  std::string driver = "vkms";  // empty: it is no DRM device
  int picture = 0;              // what shows_picture() answers; -1 with this errno
  int picture_errno = 0;
  std::uint32_t pitch_alignment = 64;
  Bytes page = kib(4);
  Bytes capacity = gib(64);
  Memory memory = Memory::kReserved;
  bool nvkms = false;  // knows the export to NVIDIA's control device
};

// One at a time: DrmCalls are plain functions.
class DrmFake {
 public:
  DrmFake();
  DrmFake(const DrmFake&) = delete;
  DrmFake& operator=(const DrmFake&) = delete;
  DrmFake(DrmFake&&) = delete;
  DrmFake& operator=(DrmFake&&) = delete;
  ~DrmFake();

  // At most three, since /dev/null, /dev/zero and /dev/full stand for them.
  FakeCard& add(std::string_view name, FakeCard card = {});
  [[nodiscard]] std::string path(std::string_view card) const;
  [[nodiscard]] DrmCalls calls() const;
  // What nvidia_drm shows under /sys/module.
  void parameter(std::string_view name, std::string_view value) const;
  // The host's, of which `available` is left without the cards.
  [[nodiscard]] std::string meminfo() const { return directory_.path("meminfo"); }
  void host_has(Bytes available);
  // Lets the host see what has been freed: between two calls nobody tells the cards.
  void settle();

  // The nth such call from now, or all of them.
  void refuse(unsigned long request, int number, unsigned nth = 0);
  // Whatever call comes when `earlier` others have been made.
  void refuse_after(std::size_t earlier, int number);

  [[nodiscard]] const std::vector<unsigned long>& asked() const { return asked_; }
  [[nodiscard]] std::size_t asked(unsigned long request) const;
  // The sizes that dumb buffers were asked for in.
  [[nodiscard]] const std::vector<Bytes>& tried() const { return tried_; }

  [[nodiscard]] std::size_t handles() const { return handles_.size(); }
  // Of which there is a handle, a descriptor or a mapping.
  [[nodiscard]] std::size_t buffers() const;
  [[nodiscard]] std::uint32_t tallest() const { return tallest_; }
  [[nodiscard]] std::size_t attached() const { return attached_; }  // control files
  // What no caller should do, whatever it is answered.
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  struct Card {
    std::string name;
    dev_t device;
    FakeCard is;
  };
  struct Memfd {
    const Card* card;
    Bytes size;
    UniqueFd memory;  // while there is a handle
    ino_t inode = 0;  // once it is exported
    bool touched = false;
    bool in_bracket = false;
  };
  struct Refusal {
    unsigned long request;
    int number;
    unsigned nth;  // 0: each
    unsigned seen = 0;
  };

  static int ioctl(int descriptor, unsigned long request, void* argument);
  static int shows_picture(int descriptor);

  // All give an errno, 0 for success.
  int refusal_of(unsigned long request);
  int answer(int descriptor, unsigned long request, void* argument);
  int answer_of(const Card& card, unsigned long request, void* argument);
  int create(const Card& card, drm_mode_create_dumb& ask);
  int close(const Card& card, std::uint32_t handle);
  int export_dma_buf(const Card& card, drm_prime_handle& ask);
  int import_dma_buf(const Card& card, drm_prime_handle& ask);
  int export_nvkms(const Card& card, const void* argument);
  int sync(int descriptor, const void* argument);

  [[nodiscard]] const Card* card_of(int descriptor) const;
  Memfd* buffer_of(const Card& card, std::uint32_t handle);
  Memfd* buffer_behind(int descriptor);
  [[nodiscard]] bool has_handle(const Memfd& buffer) const;
  void forget_freed_buffers();
  void write_meminfo();

  TemporaryDirectory directory_;
  std::list<Card> cards_;
  std::list<Memfd> buffers_;
  std::map<std::uint32_t, Memfd*> handles_;
  std::uint32_t last_handle_ = 0;
  std::uint32_t tallest_ = 0;
  std::size_t attached_ = 0;
  Bytes host_ = gib(16);
  std::uint64_t written_ = 0;  // kB, to meminfo
  std::vector<Refusal> refusals_;
  std::map<std::size_t, int> refused_after_;
  std::size_t calls_ = 0;
  std::vector<unsigned long> asked_;
  std::vector<Bytes> tried_;
  std::vector<std::string> complaints_;
};

}  // namespace carveout::test
