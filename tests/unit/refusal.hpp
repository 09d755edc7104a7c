#pragma once

// For tests of what is refused: its words, and somebody to refuse things to.

#include <grp.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "unit/helpers.hpp"

namespace carveout::test {

template <typename T>
[[nodiscard]] std::string refusal(const Result<T>& result) {
  return result ? "no refusal" : result.error().describe();
}

// The value, or an exception that fails the test.
template <typename T>
[[nodiscard]] T required(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().describe());
  return *std::move(result);
}

// As run_in_child(), by a user who may do nothing in particular.
[[nodiscard]] inline int run_as_nobody(const std::function<int()>& body) {
  constexpr uid_t kNobody = 65534;
  constexpr int kStillRoot = 98;
  return run_in_child([&] {
    const bool root = ::geteuid() == 0;
    if (root && (::setgroups(0, nullptr) != 0 || ::setuid(kNobody) != 0)) return kStillRoot;
    return body();
  });
}

}  // namespace carveout::test
