#include "support/daemon_process.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace carveout::test {

DaemonProcess::DaemonProcess(std::string binary, std::vector<std::string> options)
    : binary_(std::move(binary)), options_(std::move(options)) {
  write_file(key_file(), "secret\n", 0640);
  start();
}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    wait_for(pid_);
  }
}

void DaemonProcess::start() {
  std::vector<std::string> words{binary_,   "--socket",   socket(),  "--control",
                                 control(), "--key-file", key_file()};
  words.insert(words.end(), options_.begin(), options_.end());
  const int log =
      ::open(directory_.file("log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  pid_ = spawn(words, log, log);
  ::close(log);
  const bool ready = eventually([this] {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      throw std::runtime_error("carveoutd ended at its start: " + this->log());
    }
    try {
      return Peer(socket()).info().size > 0;
    } catch (const std::system_error&) {
      return false;
    }
  });
  if (!ready) throw std::runtime_error("carveoutd does not answer: " + this->log());
}

void DaemonProcess::signal(int number) const {
  ::kill(pid_, number);
}

int DaemonProcess::stop() {
  signal(SIGTERM);
  return wait_for(std::exchange(pid_, -1));
}

void DaemonProcess::kill() {
  signal(SIGKILL);
  wait_for(std::exchange(pid_, -1));
}

}  // namespace carveout::test
