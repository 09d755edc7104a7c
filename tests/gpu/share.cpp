// Lent memory in several processes: a borrower and those that it passes the descriptor to.

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <utility>

#include "base/text.hpp"
#include "client/lender.hpp"
#include "client/settings.hpp"
#include "cuda/mapping.hpp"
#include "gpu/gpu.hpp"
#include "gpu/parts.hpp"
#include "wire/channel.hpp"

namespace carveout::test {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::uint32_t kWriters = 1, kReaders = 2, kNobodys = 3;  // seeds
constexpr std::string_view kSame = "same";

Error failure(std::string message) {
  return Error{Code::kProtocol, 0, "", std::move(message)};
}

Result<cuda::Mapping> map_by_vmm(int descriptor, Bytes size) {
  return cuda::map({DescriptorKind::kNvidiaFile, descriptor, size},
                   {.strategy = MapStrategy::kVmm});
}

Result<void> expect(const Gpu& gpu, const cuda::Mapping& memory, Pattern pattern,
                    const std::string& what) {
  auto other = gpu.compare(memory.device_pointer(), memory.size(), pattern);
  if (!other) return std::move(other).error();
  if (*other) return failure(cat(what, ": ", **other));
  std::printf("  %s\n", what.c_str());
  return {};
}

// --- the other process ---

struct Task {
  std::uint32_t expected = 0;  // seeds
  std::uint32_t to_write = 0;
  std::uint64_t bytes = 0;
};

// kSame, or the difference. It writes only where it has found what it expected.
Result<std::string> perform(const Task& task, UniqueFd descriptor) {
  auto gpu = Gpu::open();
  if (!gpu) return std::move(gpu).error();
  auto memory = map_by_vmm(descriptor.get(), Bytes(task.bytes));
  if (!memory) return std::move(memory).error();
  descriptor.reset();  // the mapping has its own reference
  const auto other = gpu->compare(memory->device_pointer(), memory->size(), Pattern(task.expected));
  if (!other) return other.error();
  if (*other) return **other;
  auto written = gpu->write(memory->device_pointer(), memory->size(), Pattern(task.to_write));
  if (!written) return std::move(written).error();
  if (auto unmapped = memory->unmap(); !unmapped) return std::move(unmapped).error();
  return std::string(kSame);
}

// --- the borrower ---

struct Child {
  pid_t process;
  UniqueFd socket;
};

// This program anew: CUDA does not work in a process that is only forked.
Result<Child> start_reader() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error(errno, "another process", "no sockets");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd its(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, its.get(), STDIN_FILENO);
  std::string name = "gpu_check", part = "read";
  std::array<char*, 3> words{name.data(), part.data(), nullptr};
  pid_t process = 0;
  const int problem =
      ::posix_spawn(&process, "/proc/self/exe", &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) return system_error(problem, "another process", "cannot be started");
  return Child{process, std::move(ours)};
}

// What perform() answers in another process.
Result<std::string> ask_another(int descriptor, const Task& task) {
  auto child = start_reader();
  if (!child) return std::move(child).error();
  const std::string text = cat(task.expected, " ", task.to_write, " ", task.bytes);
  const bool sent = wire::send(child->socket.get(), text, descriptor) == wire::Transfer::kDone;
  auto reply = wire::receive_by(child->socket.get(), 4096, wire::Clock::now() + kPatience);
  child->socket.reset();
  int status = 0;
  ::waitpid(child->process, &status, 0);
  if (!sent || !reply || status != 0) {
    return failure(cat("the other process has failed (wait status ", status, ")"));
  }
  return reply->bytes;
}

Result<void> expect_mismatch(int descriptor, Bytes size) {
  const auto answer = ask_another(descriptor, {kNobodys, kNobodys, size.count()});
  if (!answer) return answer.error();
  if (*answer == kSame) return failure("another process sees a pattern that nobody has written");
  std::printf("  another process that looks for what nobody has written says so: %s\n",
              answer->c_str());
  return {};
}

Result<void> exchange(const Gpu& gpu, int descriptor, cuda::Mapping& memory) {
  auto done = expect(gpu, memory, Pattern::zero(), "all of it is zero, as the GPU reads it");
  if (!done) return done;
  done = gpu.write(memory.device_pointer(), memory.size(), Pattern(kWriters));
  if (!done) return done;
  done = expect(gpu, memory, Pattern(kWriters), "the GPU has written a pattern");
  if (!done) return done;
  if (done = expect_mismatch(descriptor, memory.size()); !done) return done;
  const auto answer = ask_another(descriptor, {kWriters, kReaders, memory.size().count()});
  if (!answer) return answer.error();
  if (*answer != kSame) return failure(cat("another process sees another pattern: ", *answer));
  std::printf("  another process has mapped it by vmm: its GPU reads the same, all of it\n");
  return expect(gpu, memory, Pattern(kReaders), "what that process wrote in its place is here");
}

Result<client::Lease> claim_all(const client::Settings& settings) {
  auto lease = client::borrow({settings.socket, *settings.key}, settings.size,
                              wire::Clock::now() + settings.timeout);
  if (lease && lease->loan().kind != DescriptorKind::kNvidiaFile) {
    return failure("what was lent is no NVIDIA file");
  }
  return lease;
}

}  // namespace

Result<void> read_shared() {
  auto order = wire::receive_by(STDIN_FILENO, 4096, wire::Clock::now() + kPatience);
  if (!order) return std::move(order).error();
  if (order->descriptors.size() != 1) return failure("no descriptor came");
  Task task;
  std::istringstream(order->bytes) >> task.expected >> task.to_write >> task.bytes;
  const auto answer = perform(task, std::move(order->descriptors.front()));
  if (!answer) return answer.error();
  return wire::send_by(STDIN_FILENO, *answer, wire::Clock::now() + kPatience);
}

Result<void> share() {
  auto settings = client::settings_from(client::environment());
  if (!settings) return std::move(settings).error();
  if (!*settings) return failure("CARVEOUT is not 1");
  auto gpu = Gpu::open();
  if (!gpu) return std::move(gpu).error();
  {
    auto lease = claim_all(**settings);
    if (!lease) return std::move(lease).error();
    client::Loan& loan = lease->loan();
    std::printf("  claimed %s, all there is\n", format_bytes(loan.size).c_str());
    auto memory = map_by_vmm(loan.memory.get(), loan.size);
    if (!memory) return std::move(memory).error();
    std::printf("  mapped by vmm\n");
    if (auto done = exchange(*gpu, loan.memory.get(), *memory); !done) return done;
    if (auto unmapped = memory->unmap(); !unmapped) return unmapped;
  }
  const auto lease = claim_all(**settings);
  if (!lease) return lease.error();
  const auto memory = map_by_vmm(lease->loan().memory.get(), lease->loan().size);
  if (!memory) return memory.error();
  return expect(*gpu, *memory, Pattern::zero(), "given back, and all of it claimed again: zero");
}

}  // namespace carveout::test
