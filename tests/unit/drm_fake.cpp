#include "unit/drm_fake.hpp"

#include <drm.h>
#include <drm_mode.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include "base/text.hpp"

namespace carveout::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "drm-fake";
constexpr std::string_view kLink = "/memfd:drm-fake";
constexpr std::array<const char*, 3> kDevices{"/dev/null", "/dev/zero", "/dev/full"};
constexpr const char* kControl = "/dev/urandom";
constexpr int kDirt = 0xA5;

DrmFake* current = nullptr;

struct NvkmsExport {
  std::uint32_t handle;
  std::uint32_t pad;
  std::uint64_t params;
  std::uint64_t params_size;
};
static_assert(sizeof(NvkmsExport) == 24);

struct stat status_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) status.st_mode = 0;
  return status;
}

// The inodes of our memfds that this process has a descriptor or a mapping of.
std::set<ino_t> inodes_in_use() {
  std::set<ino_t> inodes;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!fs::read_symlink(entry.path(), gone).string().starts_with(kLink)) continue;
    inodes.insert(status_of(std::stoi(entry.path().filename())).st_ino);
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kLink) == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range, access, offset, device;
    ino_t inode = 0;
    fields >> range >> access >> offset >> device >> inode;
    inodes.insert(inode);
  }
  return inodes;
}

// Memory that somebody else's data is still in.
UniqueFd dirty_memory(Bytes size) {
  UniqueFd memory(::memfd_create(kName, MFD_CLOEXEC));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(size.count())) != 0) return {};
  void* at = ::mmap(nullptr, size.count(), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return {};
  std::memset(at, kDirt, size.count());
  ::munmap(at, size.count());
  return memory;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

int version(const FakeCard& card, drm_version& ask) {
  if (card.driver.empty()) return ENOTTY;
  std::memcpy(ask.name, card.driver.data(),
              std::min<std::size_t>(ask.name_len, card.driver.size()));
  ask.name_len = card.driver.size();
  return 0;
}

}  // namespace

DrmFake::DrmFake() {
  current = this;
  fs::create_directory(directory_.path("dri"));
  fs::create_symlink(kControl, directory_.path("nvidiactl"));
  write_meminfo();
}

DrmFake::~DrmFake() {
  current = nullptr;
}

FakeCard& DrmFake::add(std::string_view name, FakeCard card) {
  const char* device = kDevices.at(cards_.size());
  fs::create_symlink(device, path(name));
  struct stat status {};
  ::stat(device, &status);
  return cards_.emplace_back(Card{std::string(name), status.st_rdev, std::move(card)}).is;
}

std::string DrmFake::path(std::string_view card) const {
  return directory_.path(cat("dri/", card));
}

DrmCalls DrmFake::calls() const {
  return {.ioctl = &DrmFake::ioctl,
          .shows_picture = &DrmFake::shows_picture,
          .devices = directory_.path("dri"),
          .modules = directory_.path("module"),
          .control = directory_.path("nvidiactl")};
}

void DrmFake::parameter(std::string_view name, std::string_view value) const {
  (void)directory_.file(cat("module/nvidia_drm/parameters/", name), cat(value, "\n"));
}

void DrmFake::host_has(Bytes available) {
  host_ = available;
  settle();
}

void DrmFake::settle() {
  forget_freed_buffers();
  write_meminfo();
}

void DrmFake::refuse(unsigned long request, int number, unsigned nth) {
  refusals_.push_back({request, number, nth});
}

void DrmFake::refuse_after(std::size_t earlier, int number) {
  refused_after_[calls_ + earlier] = number;
}

std::size_t DrmFake::asked(unsigned long request) const {
  return static_cast<std::size_t>(std::count(asked_.begin(), asked_.end(), request));
}

std::size_t DrmFake::buffers() const {
  const std::set<ino_t> used = inodes_in_use();
  return static_cast<std::size_t>(std::count_if(
      buffers_.begin(), buffers_.end(),
      [&](const Memfd& buffer) { return has_handle(buffer) || used.contains(buffer.inode); }));
}

int DrmFake::ioctl(int descriptor, unsigned long request, void* argument) {
  DrmFake& fake = *current;
  fake.asked_.push_back(request);
  int problem = fake.refusal_of(request);
  if (problem == 0) problem = fake.answer(descriptor, request, argument);
  fake.write_meminfo();
  if (problem == 0) return 0;
  errno = problem;
  return -1;
}

int DrmFake::shows_picture(int descriptor) {
  const Card* card = current->card_of(descriptor);
  if (card == nullptr) {
    errno = EBADF;
    return -1;
  }
  errno = card->is.picture_errno;
  return card->is.picture;
}

int DrmFake::refusal_of(unsigned long request) {
  if (const auto at = refused_after_.find(calls_++); at != refused_after_.end()) return at->second;
  int problem = 0;
  for (Refusal& refusal : refusals_) {
    if (refusal.request != request) continue;
    ++refusal.seen;
    if (refusal.nth == 0 || refusal.nth == refusal.seen) problem = refusal.number;
  }
  return problem;
}

int DrmFake::answer(int descriptor, unsigned long request, void* argument) {
  if (request == DMA_BUF_IOCTL_SYNC) return sync(descriptor, argument);
  const Card* card = card_of(descriptor);
  return card == nullptr ? ENOTTY : answer_of(*card, request, argument);
}

int DrmFake::answer_of(const Card& card, unsigned long request, void* argument) {
  if (card.is.driver.empty()) return ENOTTY;
  switch (request) {
    case DRM_IOCTL_VERSION:
      return version(card.is, *static_cast<drm_version*>(argument));
    case DRM_IOCTL_DROP_MASTER:
      return 0;
    case DRM_IOCTL_MODE_CREATE_DUMB:
      return create(card, *static_cast<drm_mode_create_dumb*>(argument));
    case DRM_IOCTL_MODE_DESTROY_DUMB:
      return close(card, static_cast<drm_mode_destroy_dumb*>(argument)->handle);
    case DRM_IOCTL_GEM_CLOSE:
      return close(card, static_cast<drm_gem_close*>(argument)->handle);
    case DRM_IOCTL_PRIME_HANDLE_TO_FD:
      return export_dma_buf(card, *static_cast<drm_prime_handle*>(argument));
    case DRM_IOCTL_PRIME_FD_TO_HANDLE:
      return import_dma_buf(card, *static_cast<drm_prime_handle*>(argument));
    case kNvkmsExportRequest:
      return card.is.nvkms ? export_nvkms(card, argument) : EINVAL;
    default:
      return EINVAL;  // as the DRM core does
  }
}

// As the DRM core checks it and a driver lays it out.
int DrmFake::create(const Card& card, drm_mode_create_dumb& ask) {
  constexpr std::uint64_t kLimit = std::numeric_limits<std::uint32_t>::max();
  const std::uint64_t row = std::uint64_t{ask.width} * ((ask.bpp + 7) / 8);
  tallest_ = std::max(tallest_, ask.height);
  tried_.emplace_back(row * ask.height);
  if (row == 0 || ask.height == 0 || row > kLimit || row * ask.height > kLimit) {
    complaints_.push_back(cat("a dumb buffer of ", ask.width, " x ", ask.height));
    return EINVAL;
  }
  const std::uint64_t pitch = round_up(row, card.is.pitch_alignment);
  const Bytes size(round_up(pitch * ask.height, card.is.page.count()));
  forget_freed_buffers();
  Bytes used = size;
  for (const Memfd& buffer : buffers_) {
    if (buffer.card == &card) used = used + buffer.size;
  }
  if (used > card.is.capacity) return ENOMEM;
  ask.handle = ++last_handle_;
  ask.pitch = static_cast<std::uint32_t>(pitch);
  ask.size = size.count();
  handles_[ask.handle] = &buffers_.emplace_back(Memfd{&card, size, {}});
  return 0;
}

int DrmFake::close(const Card& card, std::uint32_t handle) {
  Memfd* buffer = buffer_of(card, handle);
  if (buffer == nullptr) {
    complaints_.push_back(cat("handle ", handle, " closed, which is not open"));
    return EINVAL;
  }
  handles_.erase(handle);
  if (has_handle(*buffer)) return 0;
  buffer->memory.reset();
  if (buffer->inode == 0)
    buffers_.remove_if([&](const Memfd& candidate) { return &candidate == buffer; });
  return 0;
}

int DrmFake::export_dma_buf(const Card& card, drm_prime_handle& ask) {
  Memfd* buffer = buffer_of(card, ask.handle);
  if (buffer == nullptr) return ENOENT;
  if (ask.flags != (DRM_CLOEXEC | DRM_RDWR)) {
    complaints_.push_back(cat("exported with flags ", ask.flags));
    return EINVAL;
  }
  if (!buffer->memory) {
    buffer->memory = dirty_memory(buffer->size);
    if (!buffer->memory) return ENOMEM;
    buffer->inode = status_of(buffer->memory.get()).st_ino;
  }
  ask.fd = ::fcntl(buffer->memory.get(), F_DUPFD_CLOEXEC, 3);
  return ask.fd < 0 ? errno : 0;
}

int DrmFake::import_dma_buf(const Card& card, drm_prime_handle& ask) {
  Memfd* buffer = buffer_behind(ask.fd);
  if (buffer == nullptr || buffer->card != &card) return EINVAL;
  for (const auto& [handle, other] : handles_) {
    if (other != buffer) continue;
    ask.handle = handle;
    return 0;
  }
  buffer->memory = UniqueFd(::fcntl(ask.fd, F_DUPFD_CLOEXEC, 3));
  ask.handle = ++last_handle_;
  handles_[ask.handle] = buffer;
  return 0;
}

int DrmFake::export_nvkms(const Card& card, const void* argument) {
  const auto& ask = *static_cast<const NvkmsExport*>(argument);
  if (buffer_of(card, ask.handle) == nullptr) return ENOENT;
  if (ask.pad != 0 || ask.params_size != sizeof(int)) return EINVAL;
  const void* params = nullptr;
  static_assert(sizeof params == sizeof ask.params);
  std::memcpy(&params, &ask.params, sizeof params);
  int file = -1;
  std::memcpy(&file, params, sizeof file);
  struct stat control {};
  if (::stat(kControl, &control) != 0) return errno;
  if (!S_ISCHR(status_of(file).st_mode) || status_of(file).st_rdev != control.st_rdev)
    return EINVAL;
  // Its signal marks an open file that has memory already; nothing ever raises it.
  if (::fcntl(file, F_GETSIG) != 0) {
    complaints_.emplace_back("a control file is used again");
    return EBUSY;
  }
  ::fcntl(file, F_SETSIG, SIGURG);
  ++attached_;
  return 0;
}

int DrmFake::sync(int descriptor, const void* argument) {
  Memfd* buffer = buffer_behind(descriptor);
  if (buffer == nullptr) return ENOTTY;
  const std::uint64_t flags = static_cast<const dma_buf_sync*>(argument)->flags;
  const bool ends = (flags & DMA_BUF_SYNC_END) != 0;
  if ((flags & DMA_BUF_SYNC_WRITE) == 0 || ends != buffer->in_bracket)
    complaints_.push_back(cat("synchronised out of turn, flags ", flags));
  buffer->in_bracket = !ends;
  if (ends) buffer->touched = true;
  return 0;
}

const DrmFake::Card* DrmFake::card_of(int descriptor) const {
  const struct stat status = status_of(descriptor);
  if (!S_ISCHR(status.st_mode)) return nullptr;
  const auto card = std::find_if(cards_.begin(), cards_.end(), [&](const Card& candidate) {
    return candidate.device == status.st_rdev;
  });
  return card == cards_.end() ? nullptr : &*card;
}

DrmFake::Memfd* DrmFake::buffer_of(const Card& card, std::uint32_t handle) {
  const auto at = handles_.find(handle);
  return at != handles_.end() && at->second->card == &card ? at->second : nullptr;
}

DrmFake::Memfd* DrmFake::buffer_behind(int descriptor) {
  const struct stat status = status_of(descriptor);
  if (!S_ISREG(status.st_mode)) return nullptr;
  forget_freed_buffers();
  const auto buffer = std::find_if(buffers_.begin(), buffers_.end(), [&](const Memfd& candidate) {
    return candidate.inode == status.st_ino;
  });
  return buffer == buffers_.end() ? nullptr : &*buffer;
}

bool DrmFake::has_handle(const Memfd& buffer) const {
  return std::any_of(handles_.begin(), handles_.end(),
                     [&](const auto& handle) { return handle.second == &buffer; });
}

void DrmFake::forget_freed_buffers() {
  if (buffers_.empty()) return;
  const std::set<ino_t> used = inodes_in_use();
  buffers_.remove_if(
      [&](const Memfd& buffer) { return !has_handle(buffer) && !used.contains(buffer.inode); });
}

void DrmFake::write_meminfo() {
  std::uint64_t left = host_.count();
  for (const Memfd& buffer : buffers_) {
    const Memory memory = buffer.card->is.memory;
    // The reservation's own use shows a little, for page tables and the driver's books.
    if (memory == Memory::kReserved && buffer.inode != 0) left -= buffer.size.count() / 100;
    if (memory == Memory::kTakenAtOnce || (memory == Memory::kTakenWhenTouched && buffer.touched))
      left -= buffer.size.count();
  }
  if (left >> 10U == written_) return;
  written_ = left >> 10U;
  write_file(meminfo(), cat("MemTotal: 99999999 kB\nMemAvailable: ", written_, " kB\n"));
}

}  // namespace carveout::test
