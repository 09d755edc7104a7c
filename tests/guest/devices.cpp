#include "guest/devices.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "support/peer.hpp"

namespace carveout::test {
namespace {

constexpr uid_t kNobody = 65534;

}  // namespace

std::string cma_heap() {
  const char* name = std::getenv("CARVEOUT_TEST_HEAP");  // NOLINT(concurrency-mt-unsafe)
  return name == nullptr ? "" : name;
}

std::uint64_t meminfo(const std::string& name) {
  std::ifstream lines("/proc/meminfo");
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, name.size() + 1, name + ":") == 0) {
      return std::stoull(line.substr(name.size() + 1)) * 1024;
    }
  }
  throw std::runtime_error("/proc/meminfo has no " + name);
}

std::uint64_t figure(const DaemonProcess& daemon, const std::string& name) {
  const std::string status = daemon.status();
  const std::string label = "\"" + name + "\":";
  const std::size_t at = status.find(label);
  if (at == std::string::npos) throw std::runtime_error("no " + name + " in: " + status);
  return std::stoull(status.substr(at + label.size()));
}

std::uint64_t missing(const DaemonProcess& daemon) {
  return figure(daemon, "missing_bytes");
}

std::uint64_t largest(const DaemonProcess& daemon) {
  return figure(daemon, "largest_bytes");
}

std::string refusal(const DaemonProcess& daemon, std::uint64_t bytes) {
  const Peer peer = daemon.connect();
  const Reply reply = peer.ask(peer.alloc_request(bytes));
  return reply.descriptors.empty() ? reply.bytes : "it was granted";
}

Outcome run_carveoutd(const std::vector<std::string>& options, User user) {
  const TempDir directory;
  const std::string key = directory.file("key");
  write_file(key, "secret\n", 0640);
  std::string carveoutd = CARVEOUTD;
  std::vector<std::string> words;
  if (user == User::kNobody) {
    // The checkout may be where nobody else can go.
    carveoutd = directory.file("carveoutd");
    std::filesystem::copy_file(CARVEOUTD, carveoutd);
    for (const std::string& path : {directory.file("."), key}) {
      if (::chown(path.c_str(), kNobody, kNobody) != 0) throw std::runtime_error("chown " + path);
    }
    const std::string id = std::to_string(kNobody);
    words = {"setpriv", "--reuid", id, "--regid", id, "--clear-groups"};
  }
  words.insert(words.end(),
               {carveoutd, "--socket", directory.file("lend.sock"), "--control",
                directory.file("control.sock"), "--key-file", key, "--ledger", "none"});
  words.insert(words.end(), options.begin(), options.end());
  return run(words);
}

Outcome refuse(const std::vector<std::string>& options, User user) {
  Outcome outcome = run_carveoutd(options, user);
  // What people are told is for the record of the run.
  std::printf("%s", outcome.error.c_str());
  return outcome;
}

int in_another_process(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      code = body() ? 0 : 1;
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s\n", problem.what());
    }
    ::_exit(code);
  }
  return wait_for(child);
}

}  // namespace carveout::test
