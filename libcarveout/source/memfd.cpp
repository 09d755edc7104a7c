#include "source/memfd.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "source/available_memory.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // include/uapi/linux/memfd.h, Linux 6.3
#endif

namespace carveout {
namespace {

constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool host_has_huge_pages(const std::string& path) {
  const auto count = read_text(path, 32);
  return count && !count->empty() && count->front() >= '1' && count->front() <= '9';
}

// A memfd that cannot be executed, on kernels that have such.
Result<UniqueFd> create(unsigned extra_flags) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | extra_flags;
  UniqueFd file(::memfd_create("carveout", flags | MFD_NOEXEC_SEAL));
  if (!file && errno == EINVAL) file = UniqueFd(::memfd_create("carveout", flags));
  if (!file) return system_error(errno, "memfd_create", "no memory file");
  return file;
}

Result<void> commit(int file, Bytes size) {
  const std::string context = cat("allocating ", format_bytes(size));
  for (;;) {
    if (::fallocate(file, 0, 0, static_cast<off_t>(size.count())) == 0) return {};
    if (errno == EINTR) continue;
    if (errno == ENOSPC || errno == ENOMEM) {
      return Error{Code::kExhausted, errno, context, "the kernel has not enough memory"};
    }
    return system_error(errno, context, "fallocate failed");
  }
}

class MemfdSource final : public Source {
 public:
  explicit MemfdSource(const MemfdSettings& settings)
      : huge_(host_has_huge_pages(settings.huge_pages)), available_(settings.meminfo) {
    if (!huge_) {
      warning_ = cat("memfd: no 2 MiB huge pages are set aside on this host (", settings.huge_pages,
                     "): slices are made of ordinary pages. For fewer TLB "
                     "misses set some aside (sysctl vm.nr_hugepages=N) first");
    }
  }

  [[nodiscard]] Description describe() const override {
    return {.name = "memfd",
            .kind = DescriptorKind::kMemfd,
            .kernel_zeroes = true,
            .limit = std::nullopt,
            .ordinary_memory = true,
            .detail =
                huge_ ? "ordinary memory in sealed memfds, of 2 MiB huge pages while there are any"
                      : "ordinary memory in sealed memfds"};
  }

  Result<Buffer> allocate(Bytes size) override {
    if (size == Bytes(0) || Slices::holding(size).bytes() != size) {
      return Error{Code::kInvalid, 0, cat("allocating ", format_bytes(size)),
                   "a slice is 2 MiB, and this is not a whole number of them"};
    }
    if (huge_) {
      auto buffer = make(size, MFD_HUGETLB | MFD_HUGE_2MB);
      if (buffer || buffer.error().code != Code::kExhausted) return buffer;
      if (!ran_out_) {
        ran_out_ = true;
        warning_ = cat("memfd: the host's 2 MiB huge pages did not suffice for ",
                       format_bytes(size), ": such grants are made of ordinary pages");
      }
    }
    // Huge pages were set aside beforehand; ordinary ones come out of what everybody shares.
    if (auto spared = available_.take(size); !spared) return spared.error();
    return make(size, 0);
  }

  Result<UniqueFd> share(const Buffer& buffer) override {
    const std::string path = cat("/proc/self/fd/", buffer.descriptor.get());
    UniqueFd lent(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!lent) return system_error(errno, path, "the memory file cannot be opened a second time");
    return lent;
  }

  Result<void> scrub(Buffer& buffer) override {
    // Dropping the pages and committing new ones, which the kernel zeroes.
    const auto size = static_cast<off_t>(buffer.size.count());
    while (::fallocate(buffer.descriptor.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                       size) != 0) {
      if (errno == EINTR) continue;
      return system_error(errno, cat("scrubbing ", format_bytes(buffer.size)), "fallocate failed");
    }
    return commit(buffer.descriptor.get(), buffer.size);
  }

  std::optional<std::string> take_warning() override { return std::exchange(warning_, {}); }

 private:
  static Result<Buffer> make(Bytes size, unsigned extra_flags) {
    auto file = create(extra_flags);
    if (!file) return std::move(file).error();
    const std::string context = cat("allocating ", format_bytes(size));
    rlimit limit{};
    // Asked first: going beyond is a SIGXFSZ.
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size.count()) {
      return Error{Code::kExhausted, EFBIG, context,
                   "more than the limit of file sizes allows (ulimit -f, LimitFSIZE=)"};
    }
    if (::ftruncate(file->get(), static_cast<off_t>(size.count())) != 0) {
      return system_error(errno, context, "ftruncate failed");
    }
    if (auto committed = commit(file->get(), size); !committed) return committed.error();
    if (::fcntl(file->get(), F_ADD_SEALS, kSeals) != 0) {
      return system_error(errno, "memory file", "cannot be sealed against resizing");
    }
    return Buffer{*std::move(file), size};
  }

  const bool huge_;
  AvailableMemory available_;
  bool ran_out_ = false;
  std::optional<std::string> warning_;
};

}  // namespace

std::unique_ptr<Source> make_memfd_source(const MemfdSettings& settings) {
  return std::make_unique<MemfdSource>(settings);
}

}  // namespace carveout
