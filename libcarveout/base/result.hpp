#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace carveout {

// What kind of failure it was, for callers that act on the kind.
enum class Code {
  kSystem,     // a system call failed; `number` is its errno
  kInvalid,    // what was given is not acceptable
  kNotFound,   // the thing named does not exist
  kExhausted,  // there is not enough of what was asked for
  kRefused,    // the peer understood and said no
  kTimedOut,   // the peer did not answer in time
  kProtocol,   // the peer said something that the protocol does not have
  kClosed,     // the peer is gone
};

struct Error {
  Code code = Code::kSystem;
  int number = 0;       // errno, or 0
  std::string context;  // the thing it happened to
  std::string message;  // what happened, and what to do
  int cuda_result = 0;  // CUDA's CUresult, or 0

  // "context: message (strerror)", the parts that there are.
  [[nodiscard]] std::string describe() const;
};

// An Error from the errno of a call that has just failed.
Error system_error(int number, std::string context, std::string message);

// A value or an Error, in the shape of std::expected (which g++ 12 lacks in C++20).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }

  Error& error() & { return *std::get_if<1>(&state_); }
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }

  Error& error() & { return *error_; }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace carveout
