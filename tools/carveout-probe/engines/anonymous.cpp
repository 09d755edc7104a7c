#include "engines/anonymous.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/text.hpp"
#include "engines/room.hpp"
#include "host.hpp"

namespace carveout::probe {
namespace {

void* map_pages(Bytes size, int flags) {
  return ::mmap(nullptr, size.count(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
                -1, 0);
}

// Every page written to, since one that was only read may be the zero page.
bool bring_in(void* address, Bytes size) {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(address, size.count(), MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
#endif
  for (std::uint64_t at = 0; at < size.count(); at += 4096)
    static_cast<volatile char*>(address)[at] = 0;
  return true;
}

}  // namespace

Result<Anonymous> Anonymous::map(Bytes size, std::uint64_t page_bytes) {
  void* address = MAP_FAILED;
  const bool huge = page_bytes >= kHugePage;
  if (huge) address = map_pages(size, MAP_HUGETLB);
  // Huge pages were set aside; others are the kernel's to find, who kills where there are none.
  if (address == MAP_FAILED) {
    if (auto room = check_room(size); !room) return std::move(room).error();
    address = map_pages(size, 0);
    if (address != MAP_FAILED && page_bytes != 0) {
      (void)::madvise(address, size.count(), huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
  }
  const std::string what = cat(format_bytes(size), " of ordinary memory");
  if (address == MAP_FAILED) return system_error(errno, what, "the kernel does not give it");
  Anonymous mapped(address, size);
  if (!bring_in(address, size)) {
    return system_error(errno, what, "the kernel has not as much: say a smaller --size");
  }
  return mapped;
}

Anonymous::Anonymous(Anonymous&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), size_(other.size_) {}

Anonymous::~Anonymous() {
  if (address_ != nullptr) ::munmap(address_, size_.count());
}

}  // namespace carveout::probe
