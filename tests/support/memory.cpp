#include "support/memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace carveout::test {

Mapping::Mapping(int descriptor, std::size_t size) : size_(size) {
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  bytes_ = static_cast<std::uint8_t*>(at);
}

Mapping::~Mapping() {
  ::munmap(bytes_, size_);
}

bool Mapping::all(std::uint8_t byte) const {
  // The first byte is right, and each is as the one before it.
  return bytes_[0] == byte && std::memcmp(bytes_, bytes_ + 1, size_ - 1) == 0;
}

void Mapping::fill(std::uint8_t byte) {
  std::memset(bytes_, byte, size_);
}

bool is_zeroed_memory(int descriptor, std::size_t size) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || static_cast<std::size_t>(status.st_size) != size) {
    return false;
  }
  return Mapping(descriptor, size).all_zero();
}

}  // namespace carveout::test
