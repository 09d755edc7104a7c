#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "wire/key.hpp"

namespace carveout::daemon {

// The key in force. Whoever got in under an earlier one keeps that.
class KeyRing {
 public:
  using Held = std::shared_ptr<const wire::Key>;

  explicit KeyRing(const wire::Key& key) : current_(std::make_shared<const wire::Key>(key)) {}

  void replace(const wire::Key& key) { current_ = std::make_shared<const wire::Key>(key); }

  // Whether `candidate` is the key in force or the one that the caller already `held`; on success
  // `held` is what it got in with.
  [[nodiscard]] bool admits(std::string_view candidate, Held& held) const {
    if (held != nullptr && held->matches(candidate)) return true;
    if (held == current_ || !current_->matches(candidate)) return false;
    if (held == nullptr) held = current_;
    return true;
  }

 private:
  Held current_;
};

}  // namespace carveout::daemon
