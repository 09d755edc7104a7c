#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace carveout::test {

// A private directory that goes with everything in it.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  TempDir(TempDir&&) = delete;
  TempDir& operator=(TempDir&&) = delete;
  ~TempDir();
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_file(const std::string& path, const std::string& text, mode_t mode);
std::string read_file(const std::string& path);

// Starts a program with standard error (and output) appended to `log`; -1 inherits. The child dies
// with this process.
pid_t spawn(const std::vector<std::string>& arguments, int output, int error);

// What a finished child left: exit code, or 128 + the signal.
int wait_for(pid_t pid);

// A program run to its end.
struct Outcome {
  int code = -1;
  std::string output;
  std::string error;
};
Outcome run(const std::vector<std::string>& arguments);

std::size_t count_descriptors(pid_t pid);
std::size_t resident_kib(pid_t pid);

// Tries until it is true or the time is over; the answer of the last try.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = std::chrono::seconds(30));

}  // namespace carveout::test
