#include "client/opening.hpp"

#include <cerrno>
#include <utility>

#include "base/text.hpp"

namespace carveout::client {

Error blame(const char* row, Error problem) {
  if (problem.number == EMFILE || problem.number == ENFILE || problem.number == ENOMEM) {
    return problem;  // this process's own
  }
  problem.context = row;
  return problem;
}

Error blame_in_full(const char* row, Error problem) {
  problem.message = cat(problem.context, ": ", problem.message);
  return blame(row, std::move(problem));
}

}  // namespace carveout::client
