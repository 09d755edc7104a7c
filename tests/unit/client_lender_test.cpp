// What the lender's client refuses rather than fits, against a lender that answers anything.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "unit/client_lender_fixture.hpp"

namespace carveout::client {
namespace {

using std::chrono::milliseconds;
using test::Answer;
using test::ScriptedLender;
using test::Then;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(ClientLender, BorrowsWhatItAskedFor) {
  ::lseek(memory_.get(), 77, SEEK_SET);
  ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  const std::size_t before = test::open_descriptors();
  {
    const Lease lease = test::required(borrow_now());
    EXPECT_EQ(lease.loan().size, mib(4));
    EXPECT_EQ(lease.loan().base, Bytes(10739515392));
    EXPECT_EQ(lease.loan().kind, DescriptorKind::kMemfd);
    EXPECT_TRUE(test::is_close_on_exec(lease.loan().memory.get()));
    EXPECT_TRUE(test::is_close_on_exec(lease.watch()));
    EXPECT_EQ(::lseek(lease.loan().memory.get(), 0, SEEK_CUR), 77) << "the offset is not ours";
    EXPECT_EQ(test::open_descriptors(), before + 2);
    EXPECT_THAT(lender.events(),
                ElementsAre("connected", R"({"key":"swordfish","op":"alloc","size":4194304})"));
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST_F(ClientLender, RoundsTheAskUpBeforeItIsSent) {
  const std::vector<std::pair<Bytes, std::string>> rows{
      {Bytes(1), R"("size":2097152)"}, {Bytes(2097151), R"("size":2097152)"},
      {mib(2), R"("size":2097152)"},   {mib(2) + Bytes(1), R"("size":4194304)"},
      {mib(3), R"("size":4194304)"},   {mib(4), R"("size":4194304)"}};
  for (const auto& [ask, sent] : rows) {
    ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
    const Lease lease = test::required(borrow_within(std::chrono::seconds(20), ask));
    EXPECT_THAT(lender.events(), ElementsAre("connected", HasSubstr(sent)));
    EXPECT_EQ(lease.loan().size, Slices::holding(ask).bytes()) << "of 4 MiB: no mistake, nor used";
    ::unlink(path_.c_str());
  }
}

TEST_F(ClientLender, RefusesAnAskThatIsNone) {
  ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  const auto far_off = wire::Clock::now() + std::chrono::seconds(20);
  auto connection = test::required(Lender::connect(path_, far_off));
  for (const Bytes ask : {Bytes(0), Bytes(1ULL << 63U), Bytes(~0ULL)}) {
    EXPECT_EQ(connection.claim(key_, ask, far_off).error().code, Code::kInvalid);
  }
  EXPECT_TRUE(connection.claim(key_, mib(4), far_off)) << "it is as it was";
}

TEST_F(ClientLender, SendsAnyKeyAsJson) {
  key_ = *wire::Key::from("a\"\\\n\xc3\xbc\x01");
  ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  const Lease lease = test::required(borrow_now());
  EXPECT_THAT(lender.events(),
              ElementsAre("connected", HasSubstr("{\"key\":\"a\\\"\\\\\\n\xc3\xbc\\u0001\",")));
}

// --- no lender ---

TEST_F(ClientLender, NamesWhatIsWrongWithASocket) {
  EXPECT_EQ(refused_by_lender().number, ENOENT);
  { const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1); }
  const Error refused_connect = refused_by_lender();
  EXPECT_EQ(refused_connect.code, Code::kSystem);
  EXPECT_EQ(refused_connect.number, ECONNREFUSED);
  EXPECT_THAT(refused_connect.message, HasSubstr("is carveoutd running"));
  {
    const UniqueFd control = test::listen_at(path_, SOCK_STREAM, 1);
    EXPECT_EQ(refused_by_lender().number, EPROTOTYPE);
  }
  path_ = std::string(108, 's');
  EXPECT_EQ(refused_by_lender().code, Code::kInvalid);
  path_.clear();
  EXPECT_EQ(borrow_now().error().code, Code::kInvalid);
}

TEST_F(ClientLender, NamesASocketThatItMayNotUse) {
  const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1);
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  EXPECT_EQ(test::run_as_nobody([this] {
              const Error denied = borrow_now().error();
              if (denied.number != EACCES) return 1;
              return denied.message.find("usermod -aG carveout USER") == std::string::npos ? 2 : 0;
            }),
            0);
}

TEST_F(ClientLender, IsConnectedByNoStandardStream) {
  const ScriptedLender lender(path_, {Answer{{{kGrant, {memory_.get()}}}}});
  EXPECT_EQ(test::run_in_child([this] {
              for (const int standard : {0, 1, 2})
                ::close(standard);
              const auto lease = borrow_now();
              return lease && lease->watch() > 2 && test::is_close_on_exec(lease->watch()) ? 0 : 1;
            }),
            0);
}

// --- refusals ---

TEST_F(ClientLender, RepeatsTheLendersOwnWords) {
  const Error wrong_key = refused({Answer{{{kWrongKey}}, Then::kClose}});
  EXPECT_EQ(wrong_key.code, Code::kRefused);
  EXPECT_THAT(wrong_key.message, StartsWith("missing or unknown key"));
  EXPECT_TRUE(is_about_key(wrong_key));
  const Error full = refused({Answer{{{kFull}}, Then::kClose}});
  EXPECT_EQ(full.code, Code::kRefused);
  EXPECT_THAT(full.message, AllOf(HasSubstr("not enough free carveout"), HasSubstr("4 MiB"),
                                  Not(HasSubstr("key"))));
  EXPECT_FALSE(is_about_key(full));
}

TEST_F(ClientLender, BoundsAndEscapesTheLendersWords) {
  const std::string control =
      refused({Answer{{{"{\"ok\": false, \"error\": \"a\\u001b[2J\\nb\\u0000"
                        "\\u202e\xc2\x9b\"}"}}}})
          .message;
  for (const char c : {'\x1b', '\n', '\0', '\x9b'}) {
    EXPECT_EQ(control.find(c), std::string::npos) << control;
  }
  const std::string flood = "{\"ok\": false, \"error\": \"" + std::string(4000, 'x') + "\"}";
  EXPECT_LT(refused({Answer{{{flood}}}}).describe().size(), 300U);
}

TEST_F(ClientLender, KeepsTheKeyOutOfTheLendersWords) {
  const auto words_of = [this](const std::string& error) {
    const std::string words =
        refused({Answer{{{R"({"ok": false, "error": ")" + error + "\"}"}}}}).message;
    return words.substr(0, words.find(" (4 MiB were asked for)"));
  };
  EXPECT_EQ(words_of("no swordfish, swordfishes or swordfis"),
            "no [the key], [the key]es or [the key]");
  EXPECT_EQ(words_of("\\u0073wordfish"), "[the key]");
  EXPECT_EQ(words_of("unknown op swordfish"), "unknown op [the key]");
  for (std::size_t before = 185; before < 205; ++before) {
    EXPECT_THAT(words_of(std::string(before, 'x') + "swordfish"), Not(HasSubstr("s"))) << "cut";
  }
  EXPECT_EQ(words_of("no swordf"), "no [the key]") << "cut by the lender";
  EXPECT_EQ(words_of("no wordfish"), "no [the key]") << "cut in front";
  EXPECT_EQ(words_of("swords are fish"), "swords are fish");
  for (const char* key : {"e", "key", "missing or unknown key"}) {
    key_ = *wire::Key::from(key);
    EXPECT_THAT(refused({Answer{{{kWrongKey}}}}).message, HasSubstr("missing or unknown key"));
    EXPECT_THAT(refused({Answer{{{kFull}}}}).message, HasSubstr("not enough free carveout"));
  }
  key_ = *wire::Key::from("key-of-swordfish");
  EXPECT_EQ(words_of("missing or unknown key-of-swordfish"), "missing or unknown [the key]");
  EXPECT_EQ(words_of("size must be an integer from 1 to key-of-swordfish"),
            "size must be an integer from 1 to [the key]");
  key_ = *wire::Key::from("a\x1b\"b");
  EXPECT_EQ(words_of("<a\\u001b\\\"b>"), "<[the key]>");
}

TEST_F(ClientLender, ReportsTheRefusalOfALenderThatHadLeftBefore) {
  const UniqueFd listener = test::listen_at(path_, SOCK_SEQPACKET, 1);
  const auto far_off = wire::Clock::now() + std::chrono::seconds(20);
  auto connection = test::required(Lender::connect(path_, far_off));
  {
    const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_GT(::send(accepted.get(), kFull, std::string(kFull).size(), 0), 0);
  }
  const auto loan = connection.claim(key_, mib(2), far_off);
  ASSERT_FALSE(loan);
  EXPECT_EQ(loan.error().code, Code::kRefused);
  EXPECT_THAT(loan.error().message, HasSubstr("not enough free carveout"));
}

// --- replies that are none ---

TEST_F(ClientLender, RefusesLessThanTheWholeSlicesThatItAskedFor) {
  const ScriptedLender lender(
      path_, {Answer{{{R"({"ok": true, "base": 0, "size": 3145728})", {memory_.get()}}}}});
  const auto lease = borrow_within(std::chrono::seconds(20), mib(3));
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code, Code::kProtocol);
}

}  // namespace
}  // namespace carveout::client
