#include "contract/source_contract.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/text.hpp"

namespace carveout::test {

std::string source_case_name(const testing::TestParamInfo<SourceCase>& info) {
  return info.param.name;
}

Mapping::Mapping(int descriptor, Bytes size) : size_(size.count()) {
  void* const place = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (place != MAP_FAILED) bytes_ = static_cast<std::uint8_t*>(place);
}

Mapping::~Mapping() {
  if (bytes_ != nullptr) ::munmap(bytes_, size_);
}

bool Mapping::all(std::uint8_t byte) const {
  // Each byte equals the one before it.
  return bytes_[0] == byte && std::memcmp(bytes_, bytes_ + 1, size_ - 1) == 0;
}

void Mapping::fill(std::uint8_t byte) const {
  std::memset(bytes_, byte, size_);
}

namespace {

// Whether the kernel's list of all dma-bufs (debugfs, for root) has this inode.
bool is_dma_buf(std::uint64_t inode) {
  std::ifstream list("/sys/kernel/debug/dma_buf/bufinfo");
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string size, flags, mode, count, exporter;
    std::uint64_t found = 0;
    if (words >> size >> flags >> mode >> count >> exporter >> found && found == inode) return true;
  }
  return false;
}

}  // namespace

EndOfFile::EndOfFile(int descriptor) : events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  const std::string path = cat("/proc/self/fd/", descriptor);
  std::error_code none;
  if (std::filesystem::read_symlink(path, none).string().starts_with("/dmabuf:")) {
    dma_buf_ = inode_of(descriptor);
    watching_ = is_dma_buf(*dma_buf_);
    return;
  }
  watching_ = ::inotify_add_watch(events_.get(), path.c_str(), IN_DELETE_SELF) >= 0;
}

bool EndOfFile::seen() {
  if (dma_buf_) return !is_dma_buf(*dma_buf_);
  std::array<char, 4096> event{};
  if (::read(events_.get(), event.data(), event.size()) > 0) seen_ = true;
  return seen_;
}

std::uint64_t inode_of(int descriptor) {
  struct stat status {};
  EXPECT_EQ(::fstat(descriptor, &status), 0);
  return status.st_ino;
}

void SourceContract::SetUp() {
  auto made = GetParam().make();
  if (const auto* waived = std::get_if<Waived>(&made)) GTEST_SKIP() << "waived: " << waived->reason;
  source_ = std::get<std::unique_ptr<Source>>(std::move(made));
  (void)source_->take_warning();
}

void SourceContract::become_poor() {
  auto made = GetParam().make_poor();
  if (const auto* waived = std::get_if<Waived>(&made)) GTEST_SKIP() << "waived: " << waived->reason;
  source_ = std::get<std::unique_ptr<Source>>(std::move(made));
}

Buffer SourceContract::allocate(Bytes size) {
  auto buffer = source_->allocate(size);
  if (!buffer) {
    ADD_FAILURE() << buffer.error().describe();
    return {};
  }
  EXPECT_TRUE(buffer->descriptor);
  EXPECT_EQ(buffer->size, size);
  return *std::move(buffer);
}

void SourceContract::make_zero(Buffer& buffer) {
  if (source_->describe().kernel_zeroes) return;
  const auto scrubbed = source_->scrub(buffer);
  EXPECT_TRUE(scrubbed) << scrubbed.error().describe();
}

UniqueFd SourceContract::share(const Buffer& buffer) {
  auto lent = source_->share(buffer);
  if (!lent) {
    ADD_FAILURE() << lent.error().describe();
    return {};
  }
  EXPECT_TRUE(*lent);
  return *std::move(lent);
}

}  // namespace carveout::test
