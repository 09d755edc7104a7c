#pragma once

// What was asked for.

#include <string>
#include <variant>
#include <vector>

#include "results.hpp"
#include "run.hpp"

namespace carveout::probe {

struct Command {
  std::string name;        // info, bandwidth, residency, latency, compare
  RunSettings run;         // arms.size is 0 where none was said
  Bytes asked_size;        // what --size said, of which arms.size is whole slices
  std::string engine;      // auto, gpu, cpu
  std::string control;     // of the daemon, for its version
  std::string json, html;  // files; "" for none
  bool require_resident = false;
  std::vector<std::string> files;  // of compare: two
};

// What to print and which code to exit with, instead.
struct Answer {
  int code;
  std::string output, complaint;
};

[[nodiscard]] std::variant<Command, Answer> parse_command_line(int argc, const char* const* argv);

}  // namespace carveout::probe
