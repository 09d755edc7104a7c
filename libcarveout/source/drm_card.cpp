#include "source/drm_card.hpp"

#include <drm.h>
#include <drm_mode.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <xf86drm.h>
#include <xf86drmMode.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"

namespace carveout {
namespace {

constexpr std::string_view kNvidia = "nvidia-drm";

constexpr unsigned kDrmMajor = 226;     // Documentation/admin-guide/devices.txt
constexpr unsigned kFirstRender = 128;  // minors of render nodes

// NVIDIA's own ioctl of nvidia-drm (open kernel modules, nvidia-drm-ioctl.h, 580 to 595).
struct NvkmsExport {
  std::uint32_t handle;
  std::uint32_t pad;
  std::uint64_t params;
  std::uint64_t params_size;
};
struct NvkmsExportParams {
  int memory_fd;
};
constexpr unsigned long kNvkmsExport = DRM_IOWR(DRM_COMMAND_BASE + 0x09, NvkmsExport);

// "Y" or "N" of a driver's parameter; empty where it has none.
std::string parameter(const DrmCalls& calls, std::string_view module, std::string_view name) {
  const auto text = read_text(cat(calls.modules, "/", module, "/parameters/", name), 16);
  return text ? text->substr(0, text->find('\n')) : std::string();
}

std::string driver_of(const DrmCalls& calls, int card) {
  std::array<char, 64> name{};
  drm_version version{};
  version.name = name.data();
  version.name_len = name.size() - 1;
  if (calls.ioctl(card, DRM_IOCTL_VERSION, &version) != 0) return {};
  return {name.data(), std::min<std::size_t>(version.name_len, name.size() - 1)};
}

// Widths in pixels of four bytes, so that rows are 64 KiB, 32 KiB, ...: slices are whole rows, and
// rows fit the 16 bits that drivers count them with.
constexpr std::array<std::uint32_t, 4> kWidths{16384, 8192, 4096, 2048};
constexpr std::uint32_t kMostRows = 65'535;
constexpr std::uint32_t kBytesPerPixel = 4;
// The DRM core counts a dumb buffer's bytes in 32 bits.
constexpr Bytes kMostInOne = gib(4) - kSliceBytes;

int shows_picture(int card) {
  const std::unique_ptr<drmModeRes, decltype(&drmModeFreeResources)> resources(
      drmModeGetResources(card), &drmModeFreeResources);
  if (!resources) return -1;
  bool connected = false;
  for (int i = 0; i < resources->count_connectors && !connected; ++i) {
    const std::unique_ptr<drmModeConnector, decltype(&drmModeFreeConnector)> connector(
        drmModeGetConnectorCurrent(card, resources->connectors[i]), &drmModeFreeConnector);
    connected = connector && connector->connection == DRM_MODE_CONNECTED;
  }
  for (int i = 0; i < resources->count_crtcs && connected; ++i) {
    const std::unique_ptr<drmModeCrtc, decltype(&drmModeFreeCrtc)> crtc(
        drmModeGetCrtc(card, resources->crtcs[i]), &drmModeFreeCrtc);
    if (crtc && crtc->mode_valid != 0) return 1;
  }
  return 0;
}

}  // namespace

DrmCalls kernel_drm_calls() {
  return {.ioctl = &drmIoctl, .shows_picture = &shows_picture};
}

Result<DrmCard> DrmCard::open(const DrmCalls& calls, const std::string& path) {
  const std::string context = cat("card ", printable(path, 200));
  UniqueFd node(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!node) {
    if (errno == ENOENT) {
      return Error{Code::kNotFound, ENOENT, context,
                   "no such card: is its driver loaded? (auto looks for one)"};
    }
    const bool denied = errno == EACCES || errno == EPERM;
    return system_error(errno, context,
                        denied ? "may not be opened: run as root, or in the group of the device"
                               : "cannot be opened");
  }
  struct stat status {};
  if (::fstat(node.get(), &status) != 0 || !S_ISCHR(status.st_mode)) {
    return Error{Code::kInvalid, 0, context, "is not a device"};
  }
  if (major(status.st_rdev) == kDrmMajor && minor(status.st_rdev) >= kFirstRender) {
    return Error{Code::kInvalid, 0, context,
                 "is a render node, which gives no dumb buffers: name the card's primary node "
                 "(/dev/dri/cardN)"};
  }
  DrmCard card(calls, path, std::move(node));
  card.driver_ = driver_of(calls, card.card_.get());
  if (card.driver_.empty()) return Error{Code::kInvalid, 0, context, "is not a DRM device"};
  // The first to open a card is its master, and would keep a display server from it.
  (void)calls.ioctl(card.card_.get(), DRM_IOCTL_DROP_MASTER, nullptr);
  return card;
}

Result<bool> DrmCard::is_lit() const {
  const int answer = calls_.shows_picture(card_.get());
  if (answer >= 0) return answer > 0;
  // A card without outputs shows nothing.
  if (errno == EOPNOTSUPP || errno == EINVAL) return false;
  return explain(errno, "its outputs cannot be examined");
}

Result<DumbBuffer> DrmCard::create_dumb(Bytes size) const {
  std::uint32_t pitch = 0;
  int refusal = 0;
  for (const std::uint32_t width : kWidths) {
    const std::uint64_t row = std::uint64_t{width} * kBytesPerPixel;
    const std::uint64_t rows = size.count() / row;
    if (rows == 0 || rows > kMostRows || rows * row != size.count()) continue;
    drm_mode_create_dumb ask{};
    ask.width = width;
    ask.height = static_cast<std::uint32_t>(rows);
    ask.bpp = kBytesPerPixel * 8;
    if (calls_.ioctl(card_.get(), DRM_IOCTL_MODE_CREATE_DUMB, &ask) != 0) {
      refusal = errno;
      if (refusal == EINVAL) continue;  // it may not take rows of that width
      return refused(refusal, size);
    }
    refusal = 0;
    if (Bytes(ask.size) == size) return DumbBuffer{ask.handle, ask.pitch, size};
    // The driver wants longer rows: other rows may suit it.
    pitch = ask.pitch;
    destroy_dumb(ask.handle);
  }
  const std::string context = cat("card ", printable(path_, 200));
  if (size > kMostInOne) {
    return Error{
        Code::kExhausted, 0, context,
        cat("a dumb buffer has at most ", format_bytes(kMostInOne), ", not ", format_bytes(size))};
  }
  if (refusal != 0) return refused(refusal, size);
  return Error{Code::kInvalid, 0, context,
               cat("cannot lay out ", format_bytes(size), " as a dumb buffer (its rows become ",
                   pitch, " bytes)")};
}

Error DrmCard::refused(int problem, Bytes size) const {
  const std::string what = cat("gives no dumb buffer of ", format_bytes(size));
  if (problem != ENOMEM && problem != ENOSPC) return explain(problem, what);
  const bool console = driver_ == kNvidia && parameter(calls_, "nvidia_drm", "fbdev") == "Y";
  return {Code::kExhausted, problem,
          cat("card ", printable(path_, 200), " (", printable(driver_, 64), ")"),
          cat(what, ": it has no such memory left",
              console ? "; the console has a part of it: load the driver with nvidia_drm fbdev=0"
                      : "")};
}

void DrmCard::destroy_dumb(std::uint32_t handle) const {
  drm_mode_destroy_dumb ask{handle};
  (void)calls_.ioctl(card_.get(), DRM_IOCTL_MODE_DESTROY_DUMB, &ask);
}

Result<UniqueFd> DrmCard::export_dma_buf(std::uint32_t handle) const {
  drm_prime_handle ask{};
  ask.handle = handle;
  // A first export without DRM_RDWR would make the dma-buf read-only for good.
  ask.flags = DRM_CLOEXEC | DRM_RDWR;
  ask.fd = -1;
  if (calls_.ioctl(card_.get(), DRM_IOCTL_PRIME_HANDLE_TO_FD, &ask) != 0) {
    return explain(errno, "does not export a buffer as a dma-buf (PRIME)");
  }
  return UniqueFd(ask.fd);
}

Result<std::uint32_t> DrmCard::import_dma_buf(int descriptor) const {
  drm_prime_handle ask{};
  ask.fd = descriptor;
  if (calls_.ioctl(card_.get(), DRM_IOCTL_PRIME_FD_TO_HANDLE, &ask) != 0) {
    return explain(errno, "does not take its own dma-buf back (PRIME)");
  }
  return ask.handle;
}

void DrmCard::close_handle(std::uint32_t handle) const {
  drm_gem_close ask{};
  ask.handle = handle;
  (void)calls_.ioctl(card_.get(), DRM_IOCTL_GEM_CLOSE, &ask);
}

Result<UniqueFd> DrmCard::export_nvidia(std::uint32_t handle) const {
  UniqueFd file(::open(calls_.control.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) {
    return system_error(errno, calls_.control,
                        "NVIDIA's control device cannot be opened: is the driver loaded? "
                        "(--lend-as dma-buf needs none)");
  }
  NvkmsExportParams params{file.get()};
  NvkmsExport ask{handle, 0, reinterpret_cast<std::uint64_t>(&params), sizeof params};
  if (calls_.ioctl(card_.get(), kNvkmsExport, &ask) != 0) {
    return explain(errno,
                   "does not attach a buffer to NVIDIA's control device (--lend-as dma-buf "
                   "lends without)");
  }
  return file;
}

// What a failed call means on this card, and what to do.
Error DrmCard::explain(int problem, std::string_view what) const {
  const std::string context =
      cat("card ", printable(path_, 200), " (", printable(driver_, 64), ")");
  switch (problem) {
    case ENOSYS:
    case EOPNOTSUPP: {
      if (driver_ != kNvidia) {
        return {Code::kSystem, problem, context,
                cat(what, ": its driver cannot (another card: --card PATH, or auto)")};
      }
      const std::string modeset = parameter(calls_, "nvidia_drm", "modeset");
      return {Code::kSystem, problem, context,
              cat(what,
                  ": load the driver with nvidia_drm modeset=1 fbdev=0 (options nvidia_drm "
                  "modeset=1 fbdev=0 in /etc/modprobe.d; modeset is ",
                  modeset.empty() ? "unknown" : modeset, " now)")};
    }
    case EACCES:
    case EPERM:
      return {Code::kSystem, problem, context, cat(what, ": it is not allowed")};
    default:
      return system_error(problem, context, std::string(what));
  }
}

Result<CardChoice> choose_card(const DrmCalls& calls) {
  std::vector<std::string> paths;
  for (const std::string& name : names_in(calls.devices)) {
    if (name.starts_with("card")) paths.push_back(cat(calls.devices, "/", name));
  }
  std::vector<std::string> passed_over;
  std::vector<DrmCard> fit;
  for (const std::string& path : paths) {
    auto card = DrmCard::open(calls, path);
    if (!card) {
      passed_over.push_back(card.error().describe());
      continue;
    }
    // One slice, for a moment: some drivers deny what they can and others claim what they cannot.
    const auto buffer = card->create_dumb(kSliceBytes);
    // One that has nothing left now is no worse a card: all of it may be lent, by whom we follow.
    if (!buffer && buffer.error().code != Code::kExhausted) {
      passed_over.push_back(buffer.error().describe());
      continue;
    }
    if (buffer) card->destroy_dumb(buffer->handle);
    fit.push_back(*std::move(card));
  }
  if (fit.empty()) {
    std::string reasons;
    for (const std::string& reason : passed_over)
      reasons += cat("; ", reason);
    return Error{Code::kNotFound, 0, calls.devices,
                 cat(paths.empty() ? "there is no card: is a DRM driver loaded (nvidia_drm "
                                     "modeset=1 fbdev=0)?"
                                   : "no card gives dumb buffers",
                     reasons)};
  }
  const auto best = std::find_if(fit.begin(), fit.end(),
                                 [](const DrmCard& card) { return card.driver() == kNvidia; });
  const auto chosen = best == fit.end() ? fit.begin() : best;
  for (auto other = fit.begin(); other != fit.end(); ++other) {
    if (other == chosen) continue;
    passed_over.push_back(cat("card ", other->path(), " (", printable(other->driver(), 64), "): ",
                              chosen->driver() != other->driver() && chosen->driver() == kNvidia
                                  ? "it is not NVIDIA's"
                                  : "an earlier one does"));
  }
  return CardChoice{std::move(*chosen), std::move(passed_over)};
}

}  // namespace carveout
