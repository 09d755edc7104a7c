#include "control_client.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "base/json.hpp"
#include "base/text.hpp"
#include "wire/channel.hpp"

namespace carveout::ctl {
namespace {

constexpr std::chrono::seconds kTimeLimit{10};
// 1,023 leases take about 300 KB; this only keeps a broken peer from filling our memory.
constexpr std::size_t kMaxReply = std::size_t{64} << 20;

std::string_view remedy(int number) {
  switch (number) {
    case ENOENT:
    case ECONNREFUSED:
      return "no carveoutd answers there: is it running (journalctl -u carveoutd says why not), "
             "and is this its --control?";
    case EACCES:
    case EPERM:
      return "only root and the daemon's own user may use it: try sudo";
    case EPROTOTYPE:
      return "is another kind of socket: is it a lending socket?";
    default:
      return "cannot be reached";
  }
}

Result<std::string> read_to_end(int socket, const std::string& context,
                                wire::Clock::time_point deadline) {
  std::string text;
  std::array<char, 65536> part{};
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - wire::Clock::now()).count();
    pollfd item{socket, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&item, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Error{Code::kTimedOut, 0, context, "did not answer within 10 s"};
    const ssize_t got = ::recv(socket, part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return system_error(errno, context, "the connection broke");
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxReply) return Error{Code::kProtocol, 0, context, "answers without end"};
  }
}

}  // namespace

Result<rapidjson::Document> ask(const std::string& path, std::string_view op) {
  const auto deadline = wire::Clock::now() + kTimeLimit;
  const std::string context = cat("control socket ", printable(path, 200));
  auto socket = wire::connect_to(path, SOCK_STREAM, deadline);
  if (!socket) {
    const Error& problem = socket.error();
    if (problem.code != Code::kSystem) return problem;
    return system_error(problem.number, context, std::string(remedy(problem.number)));
  }
  const std::string request = cat(R"({"op": ")", op, "\"}\n");
  if (auto sent = wire::send_by(socket->get(), request, deadline); !sent) return sent.error();
  const auto reply = read_to_end(socket->get(), context, deadline);
  if (!reply) return reply.error();
  if (reply->empty()) {
    return Error{Code::kClosed, 0, context, "the daemon closed the connection without an answer"};
  }

  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag>(reply->data(), reply->size());
  if (document.HasParseError() || !document.IsObject()) {
    return Error{Code::kProtocol, 0, context, "what answers there is not carveoutd"};
  }
  const auto* ok = find_member(document, "ok");
  if (ok == nullptr || !ok->IsTrue()) {
    const auto* reason = find_member(document, "error");
    const bool given = reason != nullptr && reason->IsString();
    return Error{Code::kRefused, 0, context,
                 given ? printable(reason->GetString(), 200) : "refused"};
  }
  document.EraseMember("ok");  // keeps the others in order
  return document;
}

}  // namespace carveout::ctl
