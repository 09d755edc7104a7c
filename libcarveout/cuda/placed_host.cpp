// Memory files and dma-bufs in the processor's addresses, registered with the driver or not.

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/text.hpp"
#include "cuda/placed.hpp"

namespace carveout::cuda {
namespace {

class HostRange {
 public:
  static Result<HostRange> map(const File& file, const std::string& what);

  HostRange(HostRange&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), size_(other.size_) {}
  HostRange& operator=(HostRange&&) = delete;
  HostRange(const HostRange&) = delete;
  HostRange& operator=(const HostRange&) = delete;
  ~HostRange() { unmap(); }

  [[nodiscard]] void* start() const { return start_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // The pages of a dma-buf come one by one, as they are touched, and the driver wants them there.
  Result<void> populate(const std::string& what) const;
  // So that nothing else is mapped where the driver may believe this to be still.
  void unmap_keeping_addresses() {
    (void)::mmap(std::exchange(start_, nullptr), size_, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  void unmap() {
    if (start_ != nullptr) ::munmap(std::exchange(start_, nullptr), size_);
  }

 private:
  HostRange(void* start, std::size_t size) : start_(static_cast<char*>(start)), size_(size) {}

  char* start_;
  std::size_t size_;
};

// Touching what lies beyond the end would be a SIGBUS. (Of a dma-buf the kernel maps no more than
// there is.)
Result<void> check_length(const File& file, const std::string& what) {
  struct stat status {};
  if (::fstat(file.descriptor, &status) != 0) {
    return system_error(errno, what, "the descriptor cannot be asked for its length");
  }
  const auto length = static_cast<std::uint64_t>(status.st_size);
  if (length < file.size.count()) {
    return Error{Code::kInvalid, 0, what, cat("the file has only ", length, " bytes")};
  }
  // Of huge pages the kernel maps and unmaps whole ones only.
  const auto page = static_cast<std::uint64_t>(status.st_blksize);
  struct statfs system {};
  const bool huge = ::fstatfs(file.descriptor, &system) == 0 &&
                    static_cast<std::uint64_t>(system.f_type) == HUGETLBFS_MAGIC;
  if (huge && file.size.count() % page != 0) {
    return Error{
        Code::kInvalid, 0, what,
        cat("its pages are of ", format_bytes(Bytes(page)), ", which that is no multiple of")};
  }
  return {};
}

Result<HostRange> HostRange::map(const File& file, const std::string& what) {
  if (file.kind == DescriptorKind::kMemfd) {
    if (auto fit = check_length(file, what); !fit) return std::move(fit).error();
  }
  void* const start =
      ::mmap(nullptr, file.size.count(), PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor, 0);
  if (start == MAP_FAILED) return system_error(errno, what, "mmap failed");
  return HostRange(start, file.size.count());
}

Result<void> HostRange::populate(const std::string& what) const {
  int answer = -1;
  do {
    answer = ::madvise(start_, size_, MADV_POPULATE_READ);
  } while (answer != 0 && errno == EINTR);
  if (answer == 0) return {};
  if (errno != EINVAL) {
    return system_error(errno, what, "not all of it is there: a page cannot be had");
  }
  // Linux before 5.14, and memory that is no ordinary one of the host's. By reading, which changes
  // nothing.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const volatile char* const bytes = start_;
  for (std::size_t at = 0; at < size_; at += page)
    (void)bytes[at];
  return {};
}

class OnHost final : public Mapping::Placed {
 public:
  explicit OnHost(HostRange range) : range_(std::move(range)) { host_pointer = range_.start(); }

  void unmap(Undone&) override { range_.unmap(); }

 private:
  HostRange range_;
};

class Registered final : public Mapping::Placed {
 public:
  Registered(Context context, HostRange range)
      : context_(std::move(context)), range_(std::move(range)) {
    host_pointer = range_.start();
    device = context_.device();
  }

  Result<void> place(const std::string& what);

  void unmap(Undone& undone) override {
    undo_in(context_, undone, [&] { give_back(undone); });
  }

 private:
  // The memory goes whatever the driver says: it has references of its own.
  void give_back(Undone& undone) {
    Undone unregistering;
    registered_.give_back(unregistering);
    undone.note(unregistering);
    unregistering.failed() ? range_.unmap_keeping_addresses() : range_.unmap();
  }
  // Empty where it worked.
  std::optional<Error> try_register(decltype(kMemHostRegister)::Type* call, unsigned flags,
                                    const std::string& what) {
    const CUresult answer = call(host_pointer, range_.size(), flags);
    if (answer == kSuccess) return std::nullopt;
    return context_.driver()->failed(kMemHostRegister.name, answer, what);
  }

  Context context_;
  HostRange range_;
  Held<void*> registered_;
};

Result<void> Registered::place(const std::string& what) {
  const Driver& driver = *context_.driver();
  Finder find(driver);
  auto* const enlist = find(kMemHostRegister);
  auto* const unregister = find(kMemHostUnregister);
  auto* const get_pointer = find(kMemHostGetDevicePointer);
  if (find.missing()) return *find.missing();
  if (auto populated = range_.populate(what); !populated) return populated;
  const Entered entered(context_);
  if (!entered) return entered.error(what);
  if (auto plain = try_register(enlist, kHostRegisterDeviceMap, what)) {
    // What is no ordinary memory of the host's may be taken as I/O memory.
    const auto io = try_register(enlist, kHostRegisterDeviceMap | kHostRegisterIoMemory, what);
    if (io) {
      plain->message += cat("; as I/O memory: ", io->message);
      return *std::move(plain);
    }
  }
  registered_ = {context_.driver(), kMemHostUnregister.name, unregister, host_pointer};
  const CUresult answer = get_pointer(&device_pointer, host_pointer, 0);
  if (answer == kSuccess) return {};
  Undone ignored;
  give_back(ignored);
  return driver.failed(kMemHostGetDevicePointer.name, answer, what);
}

}  // namespace

PlacedOrError place_registered(const Order& order) {
  auto context = open_context(order.settings);
  if (!context) return std::move(context).error();
  auto range = HostRange::map(order.files.front(), order.what);
  if (!range) return std::move(range).error();
  auto registered = std::make_unique<Registered>(*std::move(context), *std::move(range));
  if (auto placed = registered->place(order.what); !placed) return std::move(placed).error();
  return std::unique_ptr<Mapping::Placed>(std::move(registered));
}

PlacedOrError place_on_host(const Order& order) {
  auto range = HostRange::map(order.files.front(), order.what);
  if (!range) return std::move(range).error();
  return std::unique_ptr<Mapping::Placed>(std::make_unique<OnHost>(*std::move(range)));
}

}  // namespace carveout::cuda
