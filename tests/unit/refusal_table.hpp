#pragma once

// Everything that a client of the lending protocol refuses, as rows: who is at the lending socket,
// and what a borrower of 4 MiB is told.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "unit/helpers.hpp"

namespace carveout::client {

inline constexpr const char* kGrant = R"({"ok": true, "base": 10739515392, "size": 4194304})";
inline constexpr const char* kWrongKey = R"({"ok": false, "error": "missing or unknown key"})";
inline constexpr const char* kFull =
    R"({"ok": false, "error": "not enough free carveout", "base": 10739515392, )"
    R"("size": 2145386496, "free": 4194304, "largest": 4194304})";

// What a lender may send: memory, and what is none.
struct Things {
  explicit Things(const test::TemporaryDirectory& directory);
  UniqueFd memory, short_memory, empty_memory, file, folder, zero;
  test::Pipe pipe;
  std::pair<UniqueFd, UniqueFd> sockets;
};

struct Refused {
  std::string name;
  // Puts somebody at the socket's path; whoever it is goes with the owner that is returned.
  std::function<std::shared_ptr<void>(const std::string& path, const Things& things)> stage;
  Code code;
  std::string words = "";    // part of the message
  int number = 0;            // errno
  std::string setting = "";  // the row to blame, where there are settings
  bool silent = false;       // it takes the whole time limit
  int room = -1;             // so many descriptors have room in the process; all of them
};
[[nodiscard]] const std::vector<Refused>& refusals();

}  // namespace carveout::client
