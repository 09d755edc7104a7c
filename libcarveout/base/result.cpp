#include "base/result.hpp"

#include <system_error>

namespace carveout {

std::string Error::describe() const {
  std::string text = context;
  if (!text.empty() && !message.empty()) text += ": ";
  text += message;
  if (number != 0) {
    // std::generic_category().message() is thread-safe where strerror() is not.
    text += " (" + std::generic_category().message(number) + ")";
  }
  return text;
}

Error system_error(int number, std::string context, std::string message) {
  return Error{Code::kSystem, number, std::move(context), std::move(message)};
}

}  // namespace carveout
