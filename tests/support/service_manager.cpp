#include "support/service_manager.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace carveout::test {
namespace {

constexpr int kFirst = 3;  // SD_LISTEN_FDS_START
constexpr std::size_t kMostDescriptors = 253;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

UniqueFd bound(const std::string& path, int type) {
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail(path);
  return socket;
}

// The value of NAME=value among a message's lines.
std::string value_of(const std::string& message, const std::string& name) {
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return {};
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words)
    pointers.push_back(const_cast<char*>(word.c_str()));  // NOLINT: exec does not write
  pointers.push_back(nullptr);
  return pointers;
}

// The child's descriptors from kFirst on become `passed`. Between fork and exec: system calls only.
bool place(const std::vector<int>& passed, std::vector<int>& copies) {
  const int above = kFirst + static_cast<int>(passed.size());
  // Out of the way first, so that none is overwritten before it has been moved.
  for (std::size_t i = 0; i < passed.size(); ++i) {
    copies[i] = ::fcntl(passed[i], F_DUPFD_CLOEXEC, above);
    if (copies[i] < 0) return false;
  }
  for (std::size_t i = 0; i < passed.size(); ++i) {
    if (::dup2(copies[i], kFirst + static_cast<int>(i)) < 0) return false;
  }
  return true;
}

}  // namespace

ServiceManager::ServiceManager(std::string binary, std::vector<std::string> options,
                               std::size_t store_most)
    : binary_(std::move(binary)),
      options_(std::move(options)),
      store_most_(store_most),
      listener_(bound(socket(), SOCK_SEQPACKET)),
      notify_(bound(directory_.file("notify"), SOCK_DGRAM)) {
  write_file(key_file(), "secret\n", 0640);
  if (::listen(listener_.get(), SOMAXCONN) != 0) fail("listen");
  receiver_ = std::thread(&ServiceManager::receive, this);
}

ServiceManager::~ServiceManager() {
  if (pid_ > 0) end(SIGKILL);
  tell_receiver("X-END=1");
  receiver_.join();
}

void ServiceManager::start(const std::vector<std::string>& environment) {
  settle();  // what the last one has sent
  {
    const std::lock_guard lock(mutex_);
    ready_ = false;
    pid_ = spawn(environment);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return ready_; })) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      throw std::runtime_error("carveoutd ended at its start: " + log());
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("carveoutd is not ready: " + log());
    }
  }
}

int ServiceManager::end(int signal) {
  ::kill(pid_, signal);
  return wait_for_end();
}

int ServiceManager::wait_for_end() {
  return wait_for(std::exchange(pid_, -1));
}

pid_t ServiceManager::spawn(const std::vector<std::string>& environment) {
  std::vector<int> passed{listener_.get()};
  std::string names = "lend";
  // The newest comes first, as systemd has it.
  for (auto kept = store_.rbegin(); kept != store_.rend(); ++kept) {
    passed.push_back(kept->second.get());
    names += ":" + kept->first;
  }
  // The shell knows its own process id, which is then the daemon's.
  std::vector<std::string> words{"/bin/sh", "-c",         "LISTEN_PID=$$ exec \"$@\"",
                                 "sh",      binary_,      "--control",
                                 control(), "--key-file", key_file()};
  words.insert(words.end(), options_.begin(), options_.end());
  std::vector<std::string> variables{"NOTIFY_SOCKET=" + directory_.file("notify"),
                                     "LISTEN_FDS=" + std::to_string(passed.size()),
                                     "LISTEN_FDNAMES=" + names};
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  variables.insert(variables.end(), environment.begin(), environment.end());
  std::vector<int> copies(passed.size());
  const auto argument_pointers = pointers_to(words);
  const auto environment_pointers = pointers_to(variables);
  const std::string log_path = directory_.file("log");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (::getppid() != parent || log < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0) ::_exit(126);
  if (!place(passed, copies)) ::_exit(126);
  ::execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
  ::_exit(127);
}

std::vector<std::string> ServiceManager::stored() {
  settle();
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, descriptor] : store_)
    names.push_back(name);
  return names;
}

std::size_t ServiceManager::dropped() {
  settle();
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void ServiceManager::put(std::string name, UniqueFd descriptor) {
  const std::lock_guard lock(mutex_);
  store_.emplace_back(std::move(name), std::move(descriptor));
}

// Returns once everything that was sent before has been taken.
void ServiceManager::settle() {
  std::uint64_t mine = 0;
  {
    const std::lock_guard lock(mutex_);
    mine = ++settling_;
  }
  tell_receiver("X-SETTLE=" + std::to_string(mine));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return settled_ >= mine; });
}

void ServiceManager::tell_receiver(const std::string& message) const {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, directory_.file("notify").c_str(), sizeof address.sun_path - 1);
  if (::sendto(socket.get(), message.data(), message.size(), 0,
               reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
    fail("notify");
  }
}

void ServiceManager::receive() {
  for (;;) {
    std::array<char, 4096> text{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
    iovec part{text.data(), text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(notify_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0) continue;
    std::vector<UniqueFd> descriptors;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
        descriptors.emplace_back(descriptor);
      }
    }
    const std::string words(text.data(), static_cast<std::size_t>(got));
    if (words == "X-END=1") return;
    take(words, std::move(descriptors));
  }
}

void ServiceManager::take(const std::string& message, std::vector<UniqueFd> descriptors) {
  const std::lock_guard lock(mutex_);
  const std::string name = value_of(message, "FDNAME");
  if (value_of(message, "FDSTORE") == "1") {
    // It is ours to watch the connection only if it says FDPOLL=0, which the tests rely on.
    if (value_of(message, "FDPOLL") != "0") ++dropped_;
    for (UniqueFd& descriptor : descriptors) {
      if (store_.size() < store_most_) {
        store_.emplace_back(name, std::move(descriptor));
      } else {
        ++dropped_;
      }
    }
  }
  if (value_of(message, "FDSTOREREMOVE") == "1") {
    std::erase_if(store_, [&name](const auto& kept) { return kept.first == name; });
  }
  if (value_of(message, "READY") == "1") ready_ = true;
  if (const std::string number = value_of(message, "X-SETTLE"); !number.empty()) {
    settled_ = std::max<std::uint64_t>(settled_, std::stoull(number));
  }
  changed_.notify_all();
}

}  // namespace carveout::test
