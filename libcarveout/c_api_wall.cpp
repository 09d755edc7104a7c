#include "c_api_wall.hpp"

namespace carveout::c_api {
namespace {

carveout_status_t status_of(Code code) {
  switch (code) {
    case Code::kSystem:
      return CARVEOUT_ERROR_SYSTEM;
    case Code::kInvalid:
      return CARVEOUT_ERROR_INVALID;
    case Code::kNotFound:
      return CARVEOUT_ERROR_NOT_FOUND;
    case Code::kExhausted:
      return CARVEOUT_ERROR_EXHAUSTED;
    case Code::kRefused:
      return CARVEOUT_ERROR_REFUSED;
    case Code::kTimedOut:
      return CARVEOUT_ERROR_TIMED_OUT;
    case Code::kProtocol:
      return CARVEOUT_ERROR_PROTOCOL;
    case Code::kClosed:
      return CARVEOUT_ERROR_CLOSED;
  }
  return CARVEOUT_ERROR_INTERNAL;
}

// Cut where it must be, between two characters, and marked.
template <std::size_t N>
void copy_text(std::string_view text, char (&to)[N]) {  // NOLINT: C's
  constexpr std::string_view kCut = "...";
  if (text.size() < N) {
    *std::copy(text.begin(), text.end(), to) = '\0';
    return;
  }
  std::size_t length = N - 1 - kCut.size();
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0U) == 0x80U)
    --length;
  char* const end = std::copy_n(text.begin(), length, to);
  *std::copy(kCut.begin(), kCut.end(), end) = '\0';
}

}  // namespace

carveout_status_t answer(carveout_status_t status, carveout_error_t* error,
                         std::string_view setting, std::string_view message, int number,
                         int cuda_result) {
  if (!is_usable(error)) return status;
  carveout_error_t value{};
  value.status = status;
  value.system_errno = number;
  value.cuda_result = cuda_result;
  copy_text(setting, value.setting);
  copy_text(message, value.message);
  give(value, error);
  return status;
}

carveout_status_t answer(const Error& problem, carveout_error_t* error) {
  const bool row = problem.context.starts_with("CARVEOUT");
  return answer(status_of(problem.code), error, row ? problem.context : "", problem.describe(),
                problem.number, problem.cuda_result);
}

}  // namespace carveout::c_api
