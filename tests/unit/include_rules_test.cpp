#include "unit/include_rules.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "unit/helpers.hpp"

namespace carveout::test {

void PrintTo(const Violation& violation, std::ostream* stream) {
  *stream << violation.file << ':' << violation.line << ": " << violation.what;
}

namespace {

TEST(IncludeRules, HoldInThisTree) {
  const IncludeReport report = check_includes(CARVEOUT_SOURCE_DIR);
  EXPECT_TRUE(report.violations.empty()) << testing::PrintToString(report.violations);
  EXPECT_GT(report.files, 30U);
  EXPECT_GT(report.includes, 60U);
}

struct PlantedFile {
  std::string_view name, text;
};

// A tree of all the parts, each using what it may.
const std::vector<PlantedFile>& good_tree() {
  static const std::vector<PlantedFile> kFiles{
      {"libcarveout/base/text.hpp", "#pragma once\n#include <string>\n"},
      {"libcarveout/base/fd.hpp", "#include <unistd.h>\n"},
      {"libcarveout/wire/channel.hpp", "#include \"base/fd.hpp\"\n#include <sys/socket.h>\n"},
      {"libcarveout/wire/codec.hpp", "#include \"base/text.hpp\"\n#include <vector>\n"},
      {"libcarveout/wire/codec.cpp",
       "#include \"wire/codec.hpp\"\n#include <rapidjson/reader.h>\n"},
      {"libcarveout/source/source.hpp", "#include \"base/fd.hpp\"\n#include <poll.h>\n"},
      {"libcarveout/source/cuda.cpp",
       "#include \"source/source.hpp\"\n#include \"cuda/driver.hpp\"\n"},
      {"libcarveout/cuda/driver.hpp", "#include \"base/text.hpp\"\n#include <dlfcn.h>\n"},
      {"libcarveout/cuda/mapping.hpp", "#include \"cuda/driver.hpp\"\n"},
      {"libcarveout/cuda/kernels.hpp", "#include \"cuda/driver.hpp\"\n"},
      {"libcarveout/arena/blocks.hpp", "#include \"base/text.hpp\"\n"},
      {"libcarveout/client/lender.cpp",
       "#include \"wire/codec.hpp\"\n#include \"source/source.hpp\"\n#include \"base/text.hpp\"\n"},
      {"libcarveout/client/carveout.hpp", "#include \"cuda/mapping.hpp\"\n"},
      {"libcarveout/client/l2_class.hpp", "#include \"base/text.hpp\"\n"},
      {"libcarveout/client/pages.hpp", "#include \"cuda/driver.hpp\"\n"},
      {"libcarveout/client/device_allocator.hpp",
       "#include \"cuda/driver.hpp\"\n#include \"arena/blocks.hpp\"\n"},
      {"libcarveout/client/carveout.cpp", "#include \"client/carveout.hpp\"\n"},
      {"libcarveout/c_api.cpp",
       "#include \"carveout/carveout.h\"\n#include \"client/carveout.hpp\"\n"
       "#include \"arena/blocks.hpp\"\n#include \"cuda/mapping.hpp\"\n"},
      {"include/carveout/carveout.h", "#include <stdint.h>\n"},
      {"daemon/options.hpp", "#include \"base/text.hpp\"\n"},
      {"daemon/reservation.hpp", "#include <cstdint>\n#include \"base/text.hpp\"\n"},
      {"daemon/ledger_record.hpp", "#include \"base/text.hpp\"\n"},
      {"daemon/daemon.cpp",
       "#include \"options.hpp\"\n#include \"wire/codec.hpp\"\n#include \"source/source.hpp\"\n"
       "#include \"version.hpp\"\n  #  include <iostream>\n"},
      {"daemon/adoption.cpp", "#include \"ledger_record.hpp\"\n#include <map>\n"},
      {"tools/carveoutctl/audit.cpp", "#include \"ledger_record.hpp\"\n"},
      {"tools/carveoutctl/claim.hpp", "#include \"base/text.hpp\"\n"},
      {"tools/carveoutctl/l2.hpp", "#include \"client/l2_class.hpp\"\n"},
      {"tools/carveoutctl/main.cpp",
       "#include \"claim.hpp\"\n#include \"l2.hpp\"\n#include \"wire/channel.hpp\"\n#include "
       "\"version.hpp\"\n"},
      {"tools/carveout-probe/main.cpp",
       "#include \"carveout/carveout.h\"\n#include \"cuda/driver.hpp\"\n"
       "#include \"cuda/kernels.hpp\"\n"}};
  return kFiles;
}

void plant(const TemporaryDirectory& tree) {
  for (const PlantedFile& file : good_tree())
    (void)tree.file(file.name, file.text);
}

TEST(IncludeRules, AllowWhatTheDesignAllows) {
  const TemporaryDirectory tree;
  plant(tree);
  const IncludeReport report = check_includes(tree.path());
  EXPECT_TRUE(report.violations.empty()) << testing::PrintToString(report.violations);
  EXPECT_EQ(report.files, good_tree().size());
  EXPECT_GT(report.includes, 25U);
}

struct Planted {
  std::string_view file, text, found;
};

constexpr Planted kPlanted[] = {
    {"libcarveout/base/bad.hpp", R"(#include "wire/codec.hpp")", "base must not include wire"},
    {"libcarveout/base/bad.cpp", R"(#include "../wire/codec.hpp")", "base must not include wire"},
    {"libcarveout/base/bad.cpp", R"(#include <wire/codec.hpp>)", "base must not include wire"},
    {"libcarveout/base/bad.cpp", R"(  #  include"wire/codec.hpp")", "base must not include wire"},
    {"libcarveout/base/deep/bad.cpp", R"(#include "options.hpp")", "base must not include daemon"},
    {"libcarveout/wire/bad.cpp", R"(#include "source/source.hpp")", "wire must not include source"},
    {"libcarveout/wire/bad.cpp", R"(#include "client/carveout.hpp")",
     "wire must not include client"},
    {"libcarveout/source/bad.cpp", R"(#include "wire/codec.hpp")", "source must not include wire"},
    {"libcarveout/source/drm.cpp", R"(#include "cuda/driver.hpp")", "source must not include cuda"},
    {"libcarveout/source/cuda.hpp", R"(#include "cuda/mapping.hpp")",
     "source must not include cuda"},
    {"libcarveout/cuda/bad.cpp", R"(#include "source/source.hpp")", "cuda must not include source"},
    {"libcarveout/cuda/bad.cpp", R"(#include "arena/blocks.hpp")", "cuda must not include arena"},
    {"libcarveout/arena/bad.cpp", R"(#include "cuda/driver.hpp")", "arena must not include cuda"},
    {"libcarveout/arena/bad.cpp", R"(#include "wire/codec.hpp")", "arena must not include wire"},
    {"libcarveout/client/lender.cpp", R"(#include "cuda/mapping.hpp")",
     "client must not include cuda"},
    {"libcarveout/client/device_allocator.cpp", R"(#include "cuda/mapping.hpp")",
     "client must not include cuda"},
    {"libcarveout/client/carveout.cpp", R"(#include "arena/blocks.hpp")",
     "client must not include arena"},
    {"libcarveout/client/lender.hpp", R"(#include "arena/blocks.hpp")",
     "client must not include arena"},
    {"libcarveout/client/carveout.hpp", R"(#include "options.hpp")",
     "client must not include daemon"},
    {"libcarveout/c_api.cpp", R"(#include "options.hpp")", "c_api must not include daemon"},
    {"include/carveout/bad.hpp", R"(#include "base/text.hpp")", "public must not include base"},
    {"libcarveout/surprise/bad.cpp", "", "no rule says what surprise may include"},
    {"daemon/bad.cpp", R"(#include "client/carveout.hpp")", "daemon must not include client"},
    {"daemon/bad.cpp", R"(#include "arena/blocks.hpp")", "daemon must not include arena"},
    {"daemon/bad.cpp", R"(#include "cuda/mapping.hpp")", "daemon must not include cuda"},
    {"daemon/bad.cpp", R"(#include "claim.hpp")", "daemon must not include carveoutctl"},
    {"daemon/bad.cpp", R"(#include "carveout/carveout.h")", "daemon must not include public"},
    {"daemon/bad.cpp", "#define HEADER \"client/carveout.hpp\"\n#include HEADER", "a macro names"},
    {"daemon/bad.cpp", R"(#include "gone.hpp")", "gone.hpp, which is nowhere"},
    {"tools/carveoutctl/bad.cpp", R"(#include "options.hpp")",
     "carveoutctl must not include daemon"},
    {"tools/carveoutctl/bad.cpp", R"(#include "../../daemon/options.hpp")",
     "carveoutctl must not include daemon"},
    {"tools/carveoutctl/bad.cpp", R"(#include "ledger_record.hpp")",
     "carveoutctl must not include daemon"},
    {"tools/carveoutctl/bad.cpp", R"(#include "client/l2_class.hpp")",
     "carveoutctl must not include client"},
    {"tools/carveoutctl/l2.cpp", R"(#include "client/pages.hpp")",
     "carveoutctl must not include client"},
    {"daemon/adoption.cpp", "#include <unistd.h>", "pure and must not include <unistd.h>"},
    {"tools/carveoutctl/bad.cpp", R"(#include "source/source.hpp")",
     "carveoutctl must not include source"},
    {"tools/carveout-probe/bad.cpp", R"(#include "cuda/mapping.hpp")",
     "carveout-probe must not include cuda"},
    {"tools/carveout-probe/bad.cpp", R"(#include "wire/codec.hpp")",
     "carveout-probe must not include wire"},
    {"daemon/reservation.cpp", "#include <unistd.h>", "pure and must not include <unistd.h>"},
    {"daemon/reservation.cpp", "#include <mutex>", "pure and must not include <mutex>"},
    {"daemon/reservation.cpp", R"(#include "base/fd.hpp")", "must not include <unistd.h> (in "},
    {"daemon/reservation.hpp", "#include <systemd/sd-event.h>", "pure and must not include"},
    {"daemon/ledger_record.cpp", "#include <fstream>", "pure and must not include <fstream>"},
    {"daemon/ledger_record.hpp", "#include <fcntl.h>", "pure and must not include <fcntl.h>"},
    {"libcarveout/wire/codec.cpp", "#include <sys/socket.h>", "pure and must not include"},
    {"libcarveout/wire/codec.cpp", "#include <linux/memfd.h>", "pure and must not include"},
    {"libcarveout/wire/codec.hpp", "#include <iostream>", "pure and must not include <iostream>"},
    {"libcarveout/wire/codec.hpp", "#include <cstdio>", "pure and must not include <cstdio>"},
    {"libcarveout/wire/codec.hpp", "#include <thread>", "pure and must not include <thread>"},
    {"libcarveout/wire/codec.hpp", "#include <filesystem>", "pure and must not include"},
    {"libcarveout/wire/codec.cpp", R"(#include "wire/channel.hpp")", "<sys/socket.h> (in "},
};

TEST(IncludeRules, CatchEachPlantedViolation) {
  const TemporaryDirectory tree;
  plant(tree);
  for (const Planted& bad : kPlanted) {
    (void)tree.file(bad.file, cat("#include <string>\n", bad.text, "\n"));
    const IncludeReport report = check_includes(tree.path());
    bool caught = false;
    for (const Violation& violation : report.violations) {
      caught = caught ||
               (violation.file == bad.file && violation.what.find(bad.found) != std::string::npos);
    }
    EXPECT_TRUE(caught) << bad.file << ": " << bad.text << "\nfound only "
                        << testing::PrintToString(report.violations);
    std::filesystem::remove(tree.path(bad.file));
    for (const PlantedFile& file : good_tree()) {
      if (file.name == bad.file) (void)tree.file(file.name, file.text);
    }
  }
}

TEST(IncludeRules, NameTheLine) {
  const TemporaryDirectory tree;
  plant(tree);
  (void)tree.file("daemon/bad.cpp",
                  "\n// #include \"arena/blocks.hpp\"\n#include <string>\n\n"
                  "#include \"client/carveout.hpp\"\n");
  const IncludeReport report = check_includes(tree.path());
  ASSERT_EQ(report.violations.size(), 1U) << testing::PrintToString(report.violations);
  EXPECT_EQ(report.violations[0].file, "daemon/bad.cpp");
  EXPECT_EQ(report.violations[0].line, 5U);
}

}  // namespace
}  // namespace carveout::test
