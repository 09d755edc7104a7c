#pragma once

// carveout-probe beside a real daemon, by the CPU engine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidjson/document.h>

#include <cstddef>
#include <string>
#include <vector>

#include "support/daemon_process.hpp"

namespace carveout::test {

rapidjson::Document parse(const std::string& text);

// The arm of that name of a result.
const rapidjson::Value& arm_of(const rapidjson::Document& result, const std::string& name);

// The batches that each series of that arm has.
std::vector<std::size_t> batches_of(const rapidjson::Document& result, const std::string& name);

class Probe : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> words(const std::vector<std::string>& more,
                                               const std::string& socket = "") const {
    std::vector<std::string> all{CARVEOUT_PROBE,
                                 "--engine",
                                 "cpu",
                                 "--socket",
                                 socket.empty() ? daemon_.socket() : socket,
                                 "--key-file",
                                 daemon_.key_file(),
                                 "--control",
                                 daemon_.control()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] Outcome probe(const std::vector<std::string>& more) const {
    return run(words(more));
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return daemon_.directory().file(name);
  }
  // A small run whose result is in that file.
  [[nodiscard]] std::string measured(const std::string& name,
                                     const std::string& size = "4MiB") const {
    const Outcome outcome =
        probe({"bandwidth", "--size", size, "--repetitions", "2", "--json", file(name)});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return file(name);
  }

  DaemonProcess daemon_{CARVEOUTD, {"--size", "64MiB"}};
};

}  // namespace carveout::test
