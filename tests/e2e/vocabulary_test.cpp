// The lending vocabulary is exactly `info` and `alloc`: every lower-case identifier of the system's
// headers is tried as an op, on a connection of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "support/daemon_process.hpp"

namespace carveout::test {
namespace {

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_lower_case_identifier(const std::string& word) {
  return !word.empty() && word.size() < 64 && (word[0] < '0' || word[0] > '9') &&
         std::none_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

std::set<std::string> identifiers_under(const std::string& root) {
  std::set<std::string> words;
  namespace fs = std::filesystem;
  const auto options = fs::directory_options::skip_permission_denied;
  for (const auto& entry : fs::recursive_directory_iterator(root, options)) {
    if (!entry.is_regular_file()) continue;
    const std::string text = read_file(entry.path());
    std::string word;
    for (const char c : text + " ") {
      if (in_word(c)) {
        word += c;
        continue;
      }
      if (is_lower_case_identifier(word)) words.insert(word);
      word.clear();
    }
  }
  return words;
}

TEST(Vocabulary, IsExactlyInfoAndAlloc) {
  std::set<std::string> words = identifiers_under("/usr/include");
  words.insert({"info", "alloc"});
  ASSERT_GT(words.size(), 10'000U) << "the headers of a C++ compiler are needed";
  const DaemonProcess daemon(CARVEOUTD);
  std::set<std::string> recognised;
  for (const std::string& word : words) {
    const Reply reply = daemon.connect().ask(R"({"key": "secret", "op": ")" + word + "\"}");
    ASSERT_FALSE(reply.ended()) << word;
    if (reply.bytes != R"({"ok": false, "error": "unknown op"})") recognised.insert(word);
  }
  EXPECT_EQ(recognised, (std::set<std::string>{"alloc", "info"}));
  std::cout << "swept " << words.size() << " words\n";
}

}  // namespace
}  // namespace carveout::test
