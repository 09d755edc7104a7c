#include "support/scripted_lender.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace carveout::test {
namespace {

constexpr std::uint64_t kSliceLength = 2097152;
constexpr std::uint64_t kBase = 10739515392;
constexpr std::chrono::milliseconds kLate{40};

void require(bool good, const char* what) {
  if (!good) throw std::system_error(errno, std::generic_category(), what);
}

// The lender's process.
class Server {
 public:
  Server(const Script& script, int listener, int events)
      : script_(script), listener_(listener), events_(events) {}

  [[noreturn]] void run() {
    for (;;) {
      std::vector<pollfd> items{{listener_, POLLIN, 0}};
      for (const auto& [number, socket] : connections_) {
        items.push_back({socket.get(), POLLIN, 0});
      }
      if (::poll(items.data(), items.size(), -1) < 0) continue;
      // Connections first: whoever asks after another's end finds it noticed.
      for (std::size_t i = 1; i < items.size(); ++i) {
        if (items[i].revents != 0) serve(items[i].fd);
      }
      if (items[0].revents != 0) {
        record("connected");
        connections_.emplace(next_++,
                             UniqueFd(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)));
      }
    }
  }

 private:
  // Nobody waits for those that are not asked for: what there is no room for is lost.
  void record(std::string_view event) const {
    (void)::send(events_, event.data(), event.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void serve(int socket) {
    int number = -1;
    for (const auto& [candidate, connection] : connections_) {
      if (connection.get() == socket) number = candidate;
    }
    std::array<char, 65536> buffer{};
    std::string_view request;
    if (script_.read_requests) {
      const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
      if (got <= 0) return end(number);
      request = {buffer.data(), static_cast<std::size_t>(got)};
      record(request);
    }
    const Answer answer = script_.answer(request, number);
    for (const SentDatagram& datagram : answer.datagrams) {
      std::this_thread::sleep_for(answer.delay);
      send_datagram(socket, datagram);
    }
    if (answer.datagrams.empty()) std::this_thread::sleep_for(answer.delay);
    if (answer.then == Then::kDie) ::_exit(0);
    if (answer.then == Then::kHalfClose) ::shutdown(socket, SHUT_WR);
    if (answer.then == Then::kClose) end(number);
  }

  void end(int number) {
    connections_.erase(number);
    script_.ended(number);
    record("ended");
  }

  const Script& script_;
  int listener_, events_;
  int next_ = 0;
  std::map<int, UniqueFd> connections_;
};

Script one_after_the_other(const std::vector<Answer>& answers) {
  Script script;
  const auto turns = std::make_shared<std::map<int, std::size_t>>();
  script.answer = [answers, turns](std::string_view, int connection) {
    const std::size_t turn = (*turns)[connection]++;
    return answers.at(std::min(turn, answers.size() - 1));
  };
  return script;
}

// --- a lender that keeps to the page ---

using Members = std::vector<std::pair<std::string, std::string>>;  // names and values as JSON

std::string join(const Members& members, const std::string& colon, const std::string& comma) {
  std::string text;
  for (const auto& [name, value] : members) {
    text += (text.empty() ? "" : comma) + name + colon + value;
  }
  return text;
}

// Every character of a JSON string that is not the quotes as \uNNNN.
std::string escaped(const std::string& text) {
  if (text.empty() || text.front() != '"') return text;
  std::string all = "\"";
  for (const char c : text.substr(1, text.size() - 2)) {
    std::array<char, 8> code{};
    (void)std::snprintf(code.data(), code.size(), "\\u%04X", static_cast<unsigned char>(c));
    all += code.data();
  }
  return all + "\"";
}

std::string object(Members members, Style style) {
  switch (style) {
    case Style::kLetter:
    case Style::kSlow:
      return "{" + join(members, ": ", ", ") + "}";
    case Style::kCompact:
      return "{" + join(members, ":", ",") + "}";
    case Style::kSpaced:
      return "\r\n{\n\t" + join(members, " :\t", "\n ,\r") + "  }\n";
    case Style::kReordered:
      return "{" + join(Members(members.rbegin(), members.rend()), ": ", ", ") + "}";
    case Style::kExtra:
      members.insert(members.begin(), {R"("version")", R"({"ok": false, "size": 1, "x": [null]})"});
      members.emplace_back(R"("lease")", R"("error")");
      members.emplace_back(R"("until")", "1.5e3");
      return "{" + join(members, ": ", ", ") + "}";
    case Style::kEscaped:
      for (auto& [name, value] : members) {
        name = escaped(name);
        value = escaped(value);
      }
      return "{" + join(members, ": ", ", ") + "}";
  }
  std::abort();
}

struct Accounts {
  std::uint64_t size = 0;
  std::uint64_t lent = 0;
  std::map<int, std::uint64_t> lent_to = {};
};

// The members of the reply, and whether it is a grant and of how much.
std::pair<Members, std::uint64_t> decide(std::string_view request, const std::string& key,
                                         const Accounts& accounts) {
  const auto refused = [](std::string_view why) {
    return Members{{R"("ok")", "false"}, {R"("error")", "\"" + std::string(why) + "\""}};
  };
  const auto has = [request](const std::string& text) {
    return request.find(text) != std::string_view::npos;
  };
  // As the client writes it, which is compact.
  if (!has("\"key\":\"" + key + "\"")) return {refused("missing or unknown key"), 0};
  if (!has(R"("op":"alloc")")) return {refused("unknown op"), 0};
  static constexpr std::string_view kSizeMember = "\"size\":";
  const std::size_t at = request.find(kSizeMember);
  const std::string digits(at == std::string_view::npos ? "0"
                                                        : request.substr(at + kSizeMember.size()));
  const std::uint64_t ask = std::strtoull(digits.c_str(), nullptr, 10);
  if (ask == 0 || ask > accounts.size) {
    return {refused("size must be an integer from 1 to " + std::to_string(accounts.size)), 0};
  }
  const std::uint64_t granted = (ask + kSliceLength - 1) / kSliceLength * kSliceLength;
  const std::string free = std::to_string(accounts.size - accounts.lent);
  if (granted > accounts.size - accounts.lent) {
    Members members = refused("not enough free carveout");
    members.emplace_back(R"("base")", std::to_string(kBase));
    members.emplace_back(R"("size")", std::to_string(accounts.size));
    members.emplace_back(R"("free")", free);
    members.emplace_back(R"("largest")", free);
    return {members, 0};
  }
  return {{{R"("ok")", "true"},
           {R"("base")", std::to_string(kBase)},
           {R"("size")", std::to_string(granted)}},
          granted};
}

}  // namespace

void send_datagram(int socket, const SentDatagram& datagram) {
  std::vector<int> descriptors = datagram.descriptors;
  if (datagram.memory) descriptors.push_back(datagram.memory->get());
  std::string bytes = datagram.bytes;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const std::size_t size = descriptors.size() * sizeof(int);
  std::vector<char> control(CMSG_SPACE(size));
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), descriptors.data(), size);
  }
  (void)::sendmsg(socket, &message, MSG_NOSIGNAL);
}

ScriptedLender::ScriptedLender(const std::string& path, const Script& script) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  require(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
              ::listen(listener.get(), 64) == 0,
          "bind and listen");
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0, "socketpair");
  events_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  require(pid_ >= 0, "fork");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(126);
  events_.reset();
  try {
    Server(script, listener.get(), theirs.get()).run();
  } catch (...) {
    ::_exit(125);
  }
}

ScriptedLender::ScriptedLender(const std::string& path, const std::vector<Answer>& in_turn)
    : ScriptedLender(path, one_after_the_other(in_turn)) {}

ScriptedLender::~ScriptedLender() {
  kill();
}

void ScriptedLender::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

std::vector<std::string> ScriptedLender::events() {
  std::vector<std::string> all;
  std::array<char, 65536> buffer{};
  for (ssize_t got = 0;
       (got = ::recv(events_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0;) {
    all.emplace_back(buffer.data(), static_cast<std::size_t>(got));
  }
  return all;
}

Script lender_of(std::uint64_t size, const std::string& key, Style style) {
  const auto accounts = std::make_shared<Accounts>(Accounts{.size = size});
  Script script;
  script.answer = [=](std::string_view request, int connection) {
    const auto [members, granted] = decide(request, key, *accounts);
    Answer answer{.datagrams = {{.bytes = object(members, style)}}};
    if (style == Style::kSlow) answer.delay = kLate;
    if (granted == 0) {
      answer.then = Then::kClose;
      return answer;
    }
    accounts->lent += granted;
    accounts->lent_to[connection] += granted;
    answer.datagrams[0].memory = std::make_shared<const UniqueFd>(make_memory(granted));
    return answer;
  };
  script.ended = [=](int connection) {
    accounts->lent -= accounts->lent_to[connection];
    accounts->lent_to.erase(connection);
  };
  return script;
}

UniqueFd make_memory(std::uint64_t length) {
  UniqueFd memory(::memfd_create("lent", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  require(static_cast<bool>(memory) && ::ftruncate(memory.get(), static_cast<off_t>(length)) == 0 &&
              ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0,
          "memfd");
  return memory;
}

}  // namespace carveout::test
