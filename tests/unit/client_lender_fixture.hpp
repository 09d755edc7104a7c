#pragma once

// A client, and a lender that answers what a test says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/lender.hpp"
#include "support/scripted_lender.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"

namespace carveout::client {

inline constexpr const char* kGrant = R"({"ok": true, "base": 10739515392, "size": 4194304})";
inline constexpr const char* kWrongKey = R"({"ok": false, "error": "missing or unknown key"})";
inline constexpr const char* kFull =
    R"({"ok": false, "error": "not enough free carveout", "base": 10739515392, )"
    R"("size": 2145386496, "free": 4194304, "largest": 4194304})";

// Of memory that is shared with others, as lent memory would be.
[[nodiscard]] inline std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string range, rights, rest; maps >> range >> rights && std::getline(maps, rest);) {
    if (rights.ends_with('s')) ++count;
  }
  return count;
}

class ClientLender : public testing::Test {
 protected:
  [[nodiscard]] Result<Lease> borrow_within(std::chrono::milliseconds limit,
                                            Bytes ask = mib(4)) const {
    return borrow({.socket = path_, .key = key_}, ask, wire::Clock::now() + limit);
  }
  [[nodiscard]] Result<Lease> borrow_now() const { return borrow_within(std::chrono::seconds(20)); }

  // The refusal of whatever a lender answers; no descriptor and no mapping stays behind.
  [[nodiscard]] Error refused(const std::vector<test::Answer>& answers) const {
    const test::ScriptedLender lender(path_, answers);
    return refused_by_lender();
  }
  [[nodiscard]] Error refused_by_lender() const {
    const std::size_t descriptors = test::open_descriptors();
    const std::size_t mapped = shared_mappings();
    const auto lease = borrow_now();
    EXPECT_EQ(test::open_descriptors(), descriptors);
    EXPECT_EQ(shared_mappings(), mapped);
    ::unlink(path_.c_str());
    if (lease) throw std::runtime_error("granted");
    EXPECT_THAT(lease.error().describe(),
                testing::AllOf(testing::Not(testing::HasSubstr("swordfish")),
                               testing::Not(testing::HasSubstr(path_))));
    return lease.error();
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path("lend.sock");
  wire::Key key_ = *wire::Key::from("swordfish");
  UniqueFd memory_ = test::make_memory(mib(4).count());
  UniqueFd short_ = test::make_memory(mib(4).count() - 4096);
};

}  // namespace carveout::client
