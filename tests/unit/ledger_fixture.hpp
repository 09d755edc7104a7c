#pragma once

// A ledger in a directory of its own, and what is in it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "ledger.hpp"
#include "ledger_scan.hpp"
#include "unit/helpers.hpp"

namespace carveout::daemon {

// No file of this process grows beyond `bytes` while this lives: as with a file system that is
// full.
class FileLimit {
 public:
  explicit FileLimit(std::size_t bytes);
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  FileLimit(FileLimit&&) = delete;
  FileLimit& operator=(FileLimit&&) = delete;
  ~FileLimit();

 private:
  rlimit before_{};
  void (*handler_)(int);
};

// For fixtures to inherit from.
class LedgerPlace {
 protected:
  static constexpr std::uint64_t kReserved = 64;  // slices

  [[nodiscard]] std::unique_ptr<Ledger> open(std::size_t max_file = Ledger::kMaxFile,
                                             std::uint64_t slices = kReserved) const;
  [[nodiscard]] Error refusal() const;
  // On the connection 100 + the lease.
  static LedgerRecord of(LedgerEvent event, std::uint64_t lease, std::uint64_t slices = 1);
  static void lend(Ledger& ledger, std::uint64_t lease, std::uint64_t slices = 1);

  [[nodiscard]] static std::string read(const std::string& path);
  [[nodiscard]] std::string text() const { return read(path_); }
  [[nodiscard]] static std::vector<LedgerRecord> records_of(std::string_view text);
  [[nodiscard]] std::vector<LedgerEvent> events() const;
  // "good", or the first problem of these texts one behind the other.
  [[nodiscard]] static std::string audit(const std::vector<std::string>& texts);
  [[nodiscard]] std::string audit() const { return audit({text()}); }
  // With the file before it.
  [[nodiscard]] std::string audit_both() const { return audit({read(previous_), text()}); }
  [[nodiscard]] std::vector<std::string> files() const;

  test::TemporaryDirectory directory_;
  const std::string path_ = directory_.path("ledger.jsonl");
  const std::string previous_ = path_ + ".1";
};

class LedgerFileTest : public testing::Test, protected LedgerPlace {};

}  // namespace carveout::daemon
