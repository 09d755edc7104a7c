#include "support/daemon_process.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace carveout::test {

DaemonProcess::DaemonProcess(std::string binary, std::vector<std::string> options,
                             std::vector<std::string> launcher)
    : binary_(std::move(binary)), options_(std::move(options)), launcher_(std::move(launcher)) {
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
  words.insert(words.begin(), launcher_.begin(), launcher_.end());
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

std::string DaemonProcess::status() const {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, control().c_str(), sizeof address.sun_path - 1);
  const std::string request = "{\"op\": \"status\"}\n";
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    throw std::runtime_error("the control socket does not answer");
  }
  std::string answer;
  char part[4096];
  for (ssize_t got = 0; (got = ::recv(socket.get(), part, sizeof part, 0)) > 0;) {
    answer.append(part, static_cast<std::size_t>(got));
  }
  return answer;
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
