#include "support/fuse_file.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

namespace carveout::test {
namespace {

constexpr std::uint64_t kNode = 2;
constexpr std::chrono::seconds kSilence{1};

fuse_attr attributes() {
  fuse_attr of_file{};
  of_file.ino = kNode;
  of_file.size = 4U << 20U;
  of_file.mode = S_IFREG | 0600;
  of_file.nlink = 1;
  return of_file;
}

template <typename Body>
void answer(int device, const fuse_in_header& request, const Body& body) {
  fuse_out_header header{sizeof header + sizeof body, 0, request.unique};
  std::array<iovec, 2> parts{{{&header, sizeof header}, {const_cast<Body*>(&body), sizeof body}}};
  std::ignore = ::writev(device, parts.data(), parts.size());
}

void refuse(int device, const fuse_in_header& request, int error) {
  const fuse_out_header header{sizeof header, -error, request.unique};
  std::ignore = ::write(device, &header, sizeof header);
}

void reply(int device, const fuse_in_header& request, std::atomic<int>& waits) {
  switch (request.opcode) {
    case FUSE_INIT: {
      fuse_init_out accepted{};
      accepted.major = FUSE_KERNEL_VERSION;
      accepted.minor = FUSE_KERNEL_MINOR_VERSION;
      accepted.max_write = 4096;
      return answer(device, request, accepted);
    }
    case FUSE_LOOKUP: {
      fuse_entry_out entry{};  // valid for no time at all
      entry.nodeid = kNode;
      entry.attr = attributes();
      return answer(device, request, entry);
    }
    case FUSE_OPEN:
      return answer(device, request, fuse_open_out{});
    case FUSE_FLUSH:
    case FUSE_RELEASE:
      return refuse(device, request, ENOSYS);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return;  // nobody waits
    default:
      ++waits;
      std::this_thread::sleep_for(kSilence);
      return refuse(device, request, EIO);
  }
}

[[noreturn]] void serve(int device, std::atomic<int>& waits) {
  std::vector<char> buffer(FUSE_MIN_READ_BUFFER + 4096);
  for (;;) {
    const ssize_t got = ::read(device, buffer.data(), buffer.size());
    if (got < 0 && errno == ENODEV) ::_exit(0);  // unmounted, and nobody has the file
    fuse_in_header request{};
    if (got < static_cast<ssize_t>(sizeof request)) continue;
    std::memcpy(&request, buffer.data(), sizeof request);
    reply(device, request, waits);
  }
}

}  // namespace

SilentFile::SilentFile(const std::string& directory) {
  void* const place =
      ::mmap(nullptr, sizeof *waits_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  waits_ = new (place) std::atomic<int>(0);
  const UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device) return;
  const std::string options =
      "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
  if (::mount("silent", directory.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return;
  }
  const pid_t parent = ::getpid();
  server_ = ::fork();
  if (server_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(126);
    serve(device.get(), *waits_);
  }
  if (server_ > 0) file_ = UniqueFd(::open((directory + "/file").c_str(), O_RDWR | O_CLOEXEC));
  (void)::umount2(directory.c_str(), MNT_DETACH);
}

SilentFile::~SilentFile() {
  file_.reset();
  if (server_ > 0) {
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
  }
  ::munmap(waits_, sizeof *waits_);
}

}  // namespace carveout::test
