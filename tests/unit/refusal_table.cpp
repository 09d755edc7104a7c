#include "unit/refusal_table.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "client/lender.hpp"
#include "support/scripted_lender.hpp"

namespace carveout::client {
namespace {

using std::chrono::milliseconds;
using test::Answer;
using test::Script;
using test::ScriptedLender;
using test::SentDatagram;
using test::Then;
using Rows = std::vector<Refused>;
using Stage = decltype(Refused::stage);
using Make = std::function<Answer(const Things&)>;

Stage lender(Make make) {
  return [make = std::move(make)](const std::string& path, const Things& things) {
    return std::make_shared<ScriptedLender>(path, std::vector<Answer>{make(things)});
  };
}
Stage answers(const Answer& answer) {
  return lender([answer](const Things&) { return answer; });
}
// That reply, with the memory.
Stage replies(const std::string& reply, Then then = Then::kStay) {
  return lender([=](const Things& things) {
    return Answer{{{reply, {things.memory.get()}}}, then};
  });
}
// A grant with what `pick` picks.
Stage grants(std::function<std::vector<int>(const Things&)> pick) {
  return lender([pick = std::move(pick)](const Things& things) {
    return Answer{{{kGrant, pick(things)}}};
  });
}
// A lender that answers requests which it has not read.
Stage unread(const Answer& answer) {
  return [answer](const std::string& path, const Things&) {
    Script script;
    script.read_requests = false;
    script.answer = [answer](std::string_view, int) { return answer; };
    return std::make_shared<ScriptedLender>(path, script);
  };
}

std::shared_ptr<void> listener(const std::string& path, int type) {
  return std::make_shared<UniqueFd>(test::listen_at(path, type, 8));
}

// A socket that takes no further connection.
std::shared_ptr<void> full_queue(const std::string& path, const Things&) {
  struct Full {
    UniqueFd listener;
    std::vector<Lender> queued;
  };
  auto full = std::make_shared<Full>(Full{test::listen_at(path, SOCK_SEQPACKET, 1), {}});
  while (auto next = Lender::connect(path, wire::Clock::now()))
    full->queued.push_back(*std::move(next));
  return full;
}

void add_absent(Rows& rows) {
  const std::string socket = "CARVEOUT_SOCKET";
  const auto none = [](const std::string&, const Things&) { return nullptr; };
  const auto left = [](const std::string& path, const Things&) {
    return listener(path, SOCK_SEQPACKET), nullptr;
  };
  const auto control = [](const std::string& path, const Things&) {
    return listener(path, SOCK_STREAM);
  };
  const auto deaf = [](const std::string& path, const Things&) {
    return listener(path, SOCK_SEQPACKET);
  };
  rows.insert(
      rows.end(),
      {{"no socket", none, Code::kSystem, "is carveoutd running", ENOENT, socket},
       {"nobody listens", left, Code::kSystem, "is carveoutd running", ECONNREFUSED, socket},
       {"another kind of socket", control, Code::kSystem, "the control socket", EPROTOTYPE, socket},
       {"a full queue", full_queue, Code::kTimedOut, "time limit", 0, socket, true},
       {"never accepts", deaf, Code::kTimedOut, "time limit", 0, "", true},
       {"reads, and is silent", answers({}), Code::kTimedOut, "time limit", 0, "", true}});
  const std::string gone = "closed the connection without an answer";
  for (const Then then : {Then::kClose, Then::kHalfClose, Then::kDie}) {
    const std::string how = std::to_string(static_cast<int>(then));
    rows.push_back({"ends without an answer " + how, answers({{}, then}), Code::kClosed, gone});
  }
  const auto empty = [](const Things& things) { return Answer{{{"", {things.memory.get()}}}}; };
  rows.insert(rows.end(), {{"ends unread", unread({{}, Then::kClose}), Code::kClosed, gone},
                           {"an empty datagram", answers({{{""}}}), Code::kClosed, gone},
                           {"an empty datagram with memory", lender(empty), Code::kClosed, gone}});
}

void add_refusals(Rows& rows) {
  const std::string bad_size = "size must be an integer from 1 to 2145386496";
  const std::vector<std::pair<std::string, std::string>> replies{
      {kWrongKey, "missing or unknown key: the key is not this lender's"},
      {kFull, "not enough free carveout"},
      {R"({"ok": false, "error": ")" + bad_size + "\"}", bad_size},
      {R"({"ok": false, "error": "unknown op"})", "unknown op"},
      {R"({"ok": false, "base": 0, "size": 4194304})", ""},
      {R"({"ok": false, "error": 3, "base": 0, "size": 4194304})", ""},
      {R"({"error":"no","size":4194304,"base":0,"ok":false})", "no"},
      {"{ \"\\u006f\\u006b\" : false , \"\\u0065rror\":\"\\u006eo\" }", "no"},
      {R"({"ok": true, "error": "no", "base": 0, "size": 4194304})", "no"}};
  for (const auto& [reply, words] : replies) {
    const std::string setting = reply == kWrongKey  ? "CARVEOUT_KEY"
                                : words == bad_size ? "CARVEOUT_MIB"
                                                    : "";
    for (const Then then : {Then::kStay, Then::kClose, Then::kHalfClose, Then::kDie}) {
      const std::string name = "then " + std::to_string(static_cast<int>(then)) + ": " + reply;
      rows.push_back({name, answers({{{reply}}, then}), Code::kRefused, words, 0, setting});
    }
    const std::string name = "with memory: " + reply;
    rows.push_back({name, client::replies(reply), Code::kRefused, words, 0, setting});
  }
  rows.push_back({"refuses unread", unread({{{kFull}}, Then::kClose, milliseconds(10)}),
                  Code::kRefused, "not enough free carveout"});
}

void add_no_json(Rows& rows) {
  const std::string whole(kGrant);
  for (const std::string& reply : std::vector<std::string>{
           "hello",
           "{",
           "null",
           "[]",
           "[" + whole + "]",
           "true",
           "\"ok\"",
           "{}",
           whole + whole,
           whole + "x",
           whole + std::string(1, '\0'),
           whole.substr(0, whole.size() - 1),
           whole.substr(0, 20),
           "\xef\xbb\xbf" + whole,
           "{\"ok\": true, \"base\": 0, \"size\": 4194304, \"x\": \"\xff\"}",
           R"({"base": 10739515392, "size": 4194304, "free": 4194304, "largest": 4194304})",
           R"({"base": 0, "size": 4194304})",
           R"({"ok": 1, "base": 0, "size": 4194304})",
           R"({"ok": "true", "base": 0, "size": 4194304})",
           R"({"ok": null, "base": 0, "size": 4194304})",
           R"({"OK": true, "base": 0, "size": 4194304})",
           R"({"x": {"ok": true, "base": 0, "size": 4194304}})",
           R"({"ok": true})",
           R"({"ok": true, "base": 0})",
           R"({"ok": true, "size": 4194304})",
           R"({"ok": true, "base": "0", "size": 4194304})",
           R"({"ok": true, "base": 0, "size": "4194304"})",
           R"({"ok": true, "base": 0, "size": 4194304.0})",
           R"({"ok": true, "base": 0, "size": 4194304.5})",
           R"({"ok": true, "base": 0, "size": -4194304})",
           R"({"ok": true, "base": 0, "size": 18446744073709551616})",
           R"({"ok": true, "base": 0, "size": 1e400})",
           R"({"ok": true, "base": 0, "size": [4194304]})",
           R"({"ok": true, "base": 0, "size": 4194304, "x": ")" + std::string(4096, 'x') + "\"}",
           std::string(60'000, '{'),
           std::string(100'000, ' ') + whole,
           std::string(4096, '[')}) {
    rows.push_back({reply.substr(0, 80), replies(reply), Code::kProtocol});
  }
  rows.push_back({"no JSON, and closes", replies("hello", Then::kClose), Code::kProtocol});
  for (const std::size_t at : {std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
    const auto pieces = [=](const Things& things) {
      const SentDatagram first{whole.substr(0, at)};
      return Answer{
          {first, {whole.substr(at), {things.memory.get()}}}, Then::kStay, milliseconds(5)};
    };
    rows.push_back({"in pieces, at " + std::to_string(at), lender(pieces), Code::kProtocol});
    const auto first = [=](const Things&) { return Answer{{{whole.substr(0, at)}}, Then::kDie}; };
    rows.push_back({"dies after " + std::to_string(at), lender(first), Code::kProtocol});
  }
}

void add_descriptors(Rows& rows) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{2}, std::size_t{3}, std::size_t{253}}) {
    const auto many = [count](const Things& things) {
      return std::vector<int>(count, things.memory.get());
    };
    const std::string words = "came with " + std::to_string(count) + " descriptors";
    rows.push_back({words, grants(many), Code::kProtocol, words});
  }
  const auto two = [](const Things& things) {
    return std::vector<int>{things.memory.get(), things.short_memory.get()};
  };
  for (const int room : {0, 1}) {
    rows.push_back({"more descriptors than there is room for", grants(two), Code::kSystem,
                    "no descriptor left", EMFILE, "", false, room});
  }
  struct Stranger {
    const char* name;
    int (*descriptor)(const Things&);
    const char* words;
  };
  constexpr const char* kNone = "is neither a memfd, nor a dma-buf, nor a file of NVIDIA's driver";
  constexpr const char* kShorter = "is 4 MiB, but the memory that came with it";
  for (const auto& [name, descriptor, words] : std::initializer_list<Stranger>{
           {"a file on a disk", [](const Things& all) { return all.file.get(); }, kNone},
           {"a directory", [](const Things& all) { return all.folder.get(); }, kNone},
           {"/dev/zero", [](const Things& all) { return all.zero.get(); }, kNone},
           {"a pipe", [](const Things& all) { return all.pipe.read_end.get(); }, kNone},
           {"a socket", [](const Things& all) { return all.sockets.first.get(); }, kNone},
           {"short memory", [](const Things& all) { return all.short_memory.get(); }, kShorter},
           {"no memory", [](const Things& all) { return all.empty_memory.get(); }, kShorter}}) {
    const auto one = [get = descriptor](const Things& things) {
      return std::vector<int>{get(things)};
    };
    rows.push_back({name, grants(one), Code::kProtocol, words});
  }
}

void add_sizes(Rows& rows) {
  const auto grant_of = [](const std::string& size) {
    return replies(R"({"ok": true, "base": 0, "size": )" + size + "}");
  };
  for (const char* size : {"0", "1", "2097152", "4194303"}) {
    rows.push_back({std::string("a grant of ") + size, grant_of(size), Code::kProtocol,
                    "less than the 4 MiB asked for"});
  }
  rows.push_back({"a byte too many", grant_of("4194305"), Code::kProtocol, "no whole slices"});
  rows.push_back({"beyond all", grant_of("18446744073709551615"), Code::kProtocol});
  rows.push_back({"more than the memory", grant_of("6291456"), Code::kProtocol,
                  "is 6 MiB, but the memory that came with it 4 MiB"});
}

}  // namespace

Things::Things(const test::TemporaryDirectory& directory)
    : memory(test::make_memory(4 << 20)),
      short_memory(test::make_memory((4 << 20) - 4096)),
      empty_memory(test::make_memory(0)),
      file(::open(directory.file("disk", std::string(4 << 20, '\0')).c_str(), O_RDWR | O_CLOEXEC)),
      folder(::open(directory.path().c_str(), O_RDONLY | O_CLOEXEC)),
      zero(::open("/dev/zero", O_RDWR | O_CLOEXEC)),
      pipe(test::make_pipe()),
      sockets(test::socket_pair()) {}

const std::vector<Refused>& refusals() {
  static const Rows all = [] {
    Rows rows;
    add_absent(rows);
    add_refusals(rows);
    add_no_json(rows);
    add_descriptors(rows);
    add_sizes(rows);
    return rows;
  }();
  return all;
}

}  // namespace carveout::client
