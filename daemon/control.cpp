#include "control.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/json.hpp"

namespace carveout::daemon {
namespace {

constexpr std::size_t kMaxRequest = 4096;
constexpr std::size_t kMaxConnections = 32;
constexpr std::chrono::seconds kTimeLimit{10};

constexpr std::string_view kUnreadable = R"({"ok":false,"error":"not a JSON object with an op"})";
constexpr std::string_view kUnknownOp =
    R"({"ok":false,"error":"unknown op: this daemon has status, leases, drain and undrain"})";

std::string answer_to(std::string_view line, const Control::Answer& answer) {
  rapidjson::Document request;
  request.Parse<rapidjson::kParseIterativeFlag>(line.data(), line.size());
  if (request.HasParseError() || !request.IsObject()) return std::string(kUnreadable);
  const auto* op = find_member(request, "op");
  if (op == nullptr || !op->IsString()) return std::string(kUnreadable);
  std::string reply = answer({op->GetString(), op->GetStringLength()});
  return reply.empty() ? std::string(kUnknownOp) : reply;
}

}  // namespace

class Control::Connection final : public PollSet::Member {
 public:
  Connection(Control& control, std::uint64_t id, UniqueFd socket)
      : control_(control), id_(id), socket_(std::move(socket)) {}
  ~Connection() override { control_.poll_set_.remove(id_, socket_.get()); }

  bool start() { return control_.poll_set_.watch(id_, socket_.get(), EPOLLIN, *this).has_value(); }

  void on_ready(std::uint32_t events) override {
    // A peer that has hung up gets no answer, but what it said before counts.
    const bool hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
    const bool goes_on = answering_ ? !hung_up && write() : read();
    if (!goes_on) control_.connections_.erase(id_);  // destroys *this
  }

 private:
  // Each: whether the connection goes on.
  bool read() {
    std::array<char, kMaxRequest> part{};
    const ssize_t got = ::recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    text_.append(part.data(), static_cast<std::size_t>(got));
    if (got == 0) {
      if (text_.empty()) return false;
      text_ += '\n';  // the end of the stream is the end of the line
    }
    const std::size_t end = text_.find('\n');
    if (end == std::string::npos && text_.size() <= kMaxRequest) return true;
    text_ = end == std::string::npos ? std::string(kUnreadable)
                                     : answer_to(text_.substr(0, end), control_.answer_);
    text_ += '\n';
    answering_ = true;
    return write();
  }

  bool write() {
    while (sent_ < text_.size()) {
      const ssize_t put = ::send(socket_.get(), text_.data() + sent_, text_.size() - sent_,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        return errno == EAGAIN &&
               control_.poll_set_.watch(id_, socket_.get(), EPOLLOUT, *this).has_value();
      }
      sent_ += static_cast<std::size_t>(put);
    }
    return false;
  }

  Control& control_;
  const std::uint64_t id_;
  UniqueFd socket_;
  std::string text_;  // the request as far as it has come, then the answer
  std::size_t sent_ = 0;
  bool answering_ = false;
};

Control::Control(EventLoop& loop, PollSet& poll_set, Answer answer)
    : poll_set_(poll_set),
      answer_(std::move(answer)),
      deadlines_(loop, kTimeLimit,
                 [this](std::uint64_t id, std::uint64_t /*ticket*/) { connections_.erase(id); }) {}

Control::~Control() = default;

void Control::accept(std::uint64_t id, UniqueFd socket, const Peer& peer) {
  // The file's mode says the same; this holds even where somebody has widened it.
  if (peer.uid != 0 && peer.uid != ::geteuid()) return;
  if (connections_.size() >= kMaxConnections) return;
  auto connection = std::make_unique<Connection>(*this, id, std::move(socket));
  if (!connection->start()) return;
  connections_.emplace(id, std::move(connection));
  deadlines_.set(id, 0);
}

}  // namespace carveout::daemon
