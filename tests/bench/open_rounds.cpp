#include "bench/open_rounds.hpp"

#include <carveout/carveout.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/unique_fd.hpp"
#include "bench/measure.hpp"
#include "client/lender.hpp"
#include "cuda/mapping.hpp"

namespace carveout::test {
namespace {

constexpr const char* kKey = "secret";  // DaemonProcess's

// Laps of the clock and of the processors' time.
class Laps {
 public:
  explicit Laps(pid_t daemon = -1) : daemon_(daemon) { restart(); }
  void lap(Stage stage) {
    const auto ended = Clock::now();
    const double daemon = daemon_seconds();
    const double ours = cpu_seconds(::getpid());
    round_.stages[static_cast<std::size_t>(stage)] = {
        std::chrono::duration<double, std::milli>(ended - began_).count(),
        (daemon - daemon_began_) * 1e3, (ours - ours_began_) * 1e3};
    restart();
  }
  [[nodiscard]] const Round& round() const { return round_; }

 private:
  [[nodiscard]] double daemon_seconds() const { return daemon_ < 0 ? 0 : cpu_seconds(daemon_); }
  void restart() {
    daemon_began_ = daemon_seconds();
    ours_began_ = cpu_seconds(::getpid());
    began_ = Clock::now();
  }

  pid_t daemon_;
  Round round_;
  double daemon_began_ = 0, ours_began_ = 0;
  Clock::time_point began_;
};

void touch(void* start, std::size_t size, std::size_t page) {
  auto* const bytes = static_cast<volatile char*>(start);
  for (std::size_t at = 0; at < size; at += page)
    bytes[at] = 1;
}

// The size of the pages behind a mapping, as the kernel has it.
std::size_t page_at(const void* start) {
  char first[32];
  std::snprintf(first, sizeof first, "%lx-", reinterpret_cast<unsigned long>(start));
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(first)) found = true;
    if (found && line.starts_with("KernelPageSize:")) {
      return std::stoul(line.substr(line.find(':') + 1)) * 1024;
    }
  }
  throw std::runtime_error("/proc/self/smaps does not have the lent memory");
}

// A handle of the C interface.
class Opened {
 public:
  Opened(const std::string& socket, std::uint64_t size) {
    carveout_options_t options;
    must(carveout_options_init(&options, sizeof options) == CARVEOUT_OK, "carveout_options_init");
    options.source = CARVEOUT_SOURCE_DAEMON;
    options.map = CARVEOUT_MAP_HOST;
    options.bytes = size;
    options.socket_path = socket.c_str();
    options.key = kKey;
    carveout_error_t error;
    error.struct_size = sizeof error;
    if (carveout_open(&options, &handle_, &error) != CARVEOUT_OK) {
      throw std::runtime_error(std::string("carveout_open: ") + error.message);
    }
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  Opened(Opened&&) = delete;
  Opened& operator=(Opened&&) = delete;
  ~Opened() { carveout_close(handle_, nullptr); }

  [[nodiscard]] void* start() const {
    carveout_info_t info;
    info.struct_size = sizeof info;
    must(carveout_get_info(handle_, &info) == CARVEOUT_OK, "carveout_get_info");
    return info.host_pointer;
  }

 private:
  carveout_t* handle_ = nullptr;
};

}  // namespace

Cost Round::usable() const {
  Cost sum;
  for (const Stage stage : {Stage::kHad, Stage::kMapped, Stage::kTouched}) {
    sum.wall += at(stage).wall;
    sum.daemon += at(stage).daemon;
    sum.ours += at(stage).ours;
  }
  return sum;
}

OpenRounds::OpenRounds(const DaemonProcess& daemon, std::uint64_t size)
    : daemon_(daemon),
      onlooker_(daemon.connect()),
      descriptors_(daemon.descriptors_with(onlooker_)),
      size_(size),
      page_(page_now()) {}

std::size_t OpenRounds::page_now() const {
  std::optional<Opened> memory(std::in_place, daemon_.socket(), size_);
  const std::size_t page = page_at(memory->start());
  memory.reset();
  wait_until_free();
  return page;
}

void OpenRounds::wait_until_free() const {
  must(eventually([this] { return daemon_.descriptors_with(onlooker_) == descriptors_; }),
       "the daemon does not let go of what was given back");
  const Figures figures = onlooker_.info();
  must(figures.free == figures.size, "what was given back is not free");
}

Round OpenRounds::opened() const {
  const std::string socket = daemon_.socket();
  Laps laps(daemon_.pid());
  std::optional<Opened> memory(std::in_place, socket, size_);
  laps.lap(Stage::kHad);
  touch(memory->start(), size_, page_);
  laps.lap(Stage::kTouched);
  memory.reset();
  laps.lap(Stage::kUnmapped);
  wait_until_free();
  return laps.round();
}

Round OpenRounds::in_steps() const {
  const auto key = wire::Key::from(kKey);
  must(key.has_value(), "the key is none");
  const client::LenderSettings settings{daemon_.socket(), *key};
  Laps laps(daemon_.pid());
  auto borrowed =
      client::borrow(settings, Bytes(size_), wire::Clock::now() + std::chrono::seconds(10));
  laps.lap(Stage::kHad);
  if (!borrowed) throw std::runtime_error(borrowed.error().describe());
  std::optional<client::Lease> lease(*std::move(borrowed));
  auto mapping = cuda::map({DescriptorKind::kMemfd, lease->loan().memory.get(), Bytes(size_)},
                           {.strategy = MapStrategy::kHost});
  lease->loan().memory.reset();
  laps.lap(Stage::kMapped);
  if (!mapping) throw std::runtime_error(mapping.error().describe());
  touch(mapping->host_pointer(), size_, page_);
  laps.lap(Stage::kTouched);
  must(mapping->unmap().has_value(), "the lent memory cannot be unmapped");
  laps.lap(Stage::kUnmapped);
  lease.reset();
  laps.lap(Stage::kGone);
  wait_until_free();
  return laps.round();
}

Round OpenRounds::memfd() const {
  const bool huge = page_ != static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const unsigned flags = MFD_CLOEXEC | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0U);
  Laps laps;
  UniqueFd file(::memfd_create("reference", flags));
  must(static_cast<bool>(file) && ::ftruncate(file.get(), static_cast<off_t>(size_)) == 0 &&
           ::fallocate(file.get(), 0, 0, static_cast<off_t>(size_)) == 0,
       "no memfd of the same pages");
  laps.lap(Stage::kHad);
  void* const start = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  file.reset();
  laps.lap(Stage::kMapped);
  must(start != MAP_FAILED, "mmap of the memfd");
  touch(start, size_, page_);
  laps.lap(Stage::kTouched);
  ::munmap(start, size_);
  laps.lap(Stage::kUnmapped);
  return laps.round();
}

}  // namespace carveout::test
