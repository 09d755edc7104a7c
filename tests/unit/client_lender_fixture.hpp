#pragma once

// A client, and a lender that answers what a test says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/lender.hpp"
#include "support/holdings.hpp"
#include "support/scripted_lender.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"
#include "unit/refusal_table.hpp"

namespace carveout::client {

class ClientLender : public testing::Test {
 protected:
  [[nodiscard]] Result<Lease> borrow_within(std::chrono::milliseconds limit,
                                            Bytes ask = mib(4)) const {
    return borrow({.socket = path_, .key = key_}, ask, wire::Clock::now() + limit);
  }
  [[nodiscard]] Result<Lease> borrow_now() const { return borrow_within(std::chrono::seconds(20)); }

  // The refusal of whatever a lender answers; nothing stays open or mapped.
  [[nodiscard]] Error refused(const std::vector<test::Answer>& answers) const {
    const test::ScriptedLender lender(path_, answers);
    return refused_by_lender();
  }
  [[nodiscard]] Error refused_by_lender() const {
    const test::Holdings before = test::holdings();
    const auto lease = borrow_now();
    EXPECT_EQ(test::changed_since(before), "");
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
