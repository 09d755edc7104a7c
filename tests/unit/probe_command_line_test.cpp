// What may be said to carveout-probe, and what a bar looks like.

#include "command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engines/crew.hpp"
#include "exit_codes.hpp"
#include "show/progress.hpp"

namespace carveout::probe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

std::variant<Command, Answer> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "carveout-probe");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}
Command good(std::vector<const char*> words) {
  auto parsed = parse(std::move(words));
  if (auto* answer = std::get_if<Answer>(&parsed)) {
    ADD_FAILURE() << answer->complaint;
    return {};
  }
  return std::get<Command>(std::move(parsed));
}
std::string refused(std::vector<const char*> words) {
  auto parsed = parse(std::move(words));
  if (!std::holds_alternative<Answer>(parsed)) return "nothing was refused";
  EXPECT_EQ(std::get<Answer>(parsed).code, kUsage);
  EXPECT_THAT(std::get<Answer>(parsed).output, IsEmpty());
  return std::get<Answer>(parsed).complaint;
}

TEST(ProbeCommandLine, Defaults) {
  const Command command = good({"bandwidth"});
  EXPECT_EQ(command.name, "bandwidth");
  EXPECT_EQ(command.engine, "auto");
  EXPECT_EQ(command.run.arms.size, Bytes(0)) << "the engine's";
  EXPECT_EQ(command.run.blocks, kLeastBlocks);
  EXPECT_EQ(command.run.repetitions, 0U);
  EXPECT_EQ(command.run.threads, 1U);
  EXPECT_THAT(command.run.arms.sources, IsEmpty()) << "the engine's";
  EXPECT_FALSE(command.run.arms.socket) << "the library's";
  EXPECT_FALSE(command.require_resident);
}

TEST(ProbeCommandLine, Everything) {
  const Command command = good({"residency",
                                "--engine",
                                "cpu",
                                "--source",
                                "daemon",
                                "--source",
                                "memfd",
                                "--map",
                                "host",
                                "--size",
                                "3MiB",
                                "--blocks",
                                "12",
                                "--repetitions",
                                "9",
                                "--threads",
                                "1",
                                "--socket",
                                "/s",
                                "--key-file",
                                "/k",
                                "--control",
                                "/c",
                                "--card",
                                "/dev/dri/card1",
                                "--heap",
                                "system",
                                "--device",
                                "1",
                                "--json",
                                "a.json",
                                "--html",
                                "a.html",
                                "--require",
                                "resident"});
  EXPECT_THAT(command.run.arms.sources, ElementsAre("daemon", "memfd"));
  EXPECT_THAT(command.run.arms.maps, ElementsAre("host"));
  EXPECT_EQ(command.run.arms.size, mib(4)) << "whole slices";
  EXPECT_EQ(command.asked_size, mib(3)) << "so that it can be said";
  EXPECT_EQ(command.run.blocks, 12U);
  EXPECT_EQ(command.run.repetitions, 9U);
  EXPECT_EQ(command.run.arms.socket, "/s");
  EXPECT_EQ(command.run.arms.key_file, "/k");
  EXPECT_EQ(command.run.arms.card, "/dev/dri/card1");
  EXPECT_EQ(command.run.arms.heap, "system");
  EXPECT_EQ(command.run.arms.device, 1);
  EXPECT_EQ(command.control, "/c");
  EXPECT_EQ(command.json, "a.json");
  EXPECT_EQ(command.html, "a.html");
  EXPECT_TRUE(command.require_resident);
  EXPECT_THAT(good({"compare", "a.json", "b.json"}).files, ElementsAre("a.json", "b.json"));
}

TEST(ProbeCommandLine, MistakesAreNamed) {
  EXPECT_THAT(refused({}), HasSubstr("say info, bandwidth"));
  EXPECT_THAT(refused({"measure"}), HasSubstr("\"measure\" is not a command: say info"));
  EXPECT_THAT(refused({"bandwidth", "--engine", "tpu"}),
              AllOf(HasSubstr("--engine"), HasSubstr("tpu")));
  EXPECT_THAT(refused({"bandwidth", "--source", "disk"}), HasSubstr("disk"));
  EXPECT_THAT(refused({"bandwidth", "--map", "mmap"}), HasSubstr("mmap"));
  EXPECT_THAT(refused({"bandwidth", "--size", "many"}), HasSubstr("many"));
  EXPECT_THAT(refused({"bandwidth", "--size", "0"}), HasSubstr("say 1 to 1024 GiB"));
  EXPECT_THAT(refused({"bandwidth", "--size", "2TiB"}), HasSubstr("--size"));
  EXPECT_THAT(refused({"bandwidth", "--blocks", "0"}), HasSubstr("--blocks"));
  EXPECT_THAT(refused({"bandwidth", "--blocks", "-8"}), HasSubstr("--blocks"));
  EXPECT_THAT(refused({"bandwidth", "--require", "resident"}), HasSubstr("--require"));
  EXPECT_THAT(refused({"residency", "--require", "fast"}),
              AllOf(HasSubstr("--require"), HasSubstr("fast not in {resident}")));
  EXPECT_THAT(refused({"compare", "one.json"}), HasSubstr("FILES"));
  EXPECT_THAT(refused({"compare", "1", "2", "3"}), HasSubstr("3"));
  EXPECT_THAT(refused({"info", "--html", "x"}), HasSubstr("info has no page"));
  EXPECT_THAT(refused({"bandwidth", "--json", "x", "--html", "x"}), HasSubstr("the same file"));
  EXPECT_THAT(refused({"bandwidth", "--json", "x", "--html", "./x"}), HasSubstr("the same file"));
  EXPECT_THAT(refused({"compare", "a", "b", "--json", "./b"}),
              HasSubstr("--json would take the place of b, which is compared"));
  EXPECT_EQ(good({"bandwidth", "--json", "/dev/null", "--html", "/dev/null"}).html, "/dev/null");
  const std::string more = std::to_string(allowed_processors().size() + 1);
  EXPECT_THAT(refused({"bandwidth", "--threads", more.c_str()}),
              HasSubstr("this process may run on"));
  EXPECT_THAT(refused({"bandwidth", "--color\n"}), HasSubstr("\\x0a")) << "made printable";
}

TEST(ProbeCommandLine, HelpAndVersionAreNoMistakes) {
  const auto help = std::get<Answer>(parse({"--help"}));
  EXPECT_EQ(help.code, kDone);
  EXPECT_THAT(help.output, AllOf(HasSubstr("residency"), HasSubstr("--source")));
  EXPECT_THAT(help.complaint, IsEmpty());
  EXPECT_THAT(std::get<Answer>(parse({"--version"})).output, StartsWith("carveout-probe "));
}

TEST(ProbeProgress, IsALineThatFits) {
  EXPECT_EQ(progress_line(0, 10, 0, 54), "[                    ] 0 %");
  EXPECT_EQ(progress_line(5, 10, 7.9, 54), "[##########          ] 50 %, about 8 s left");
  EXPECT_EQ(progress_line(10, 10, 3, 54), "[####################] 100 %");
  EXPECT_EQ(progress_line(0, 0, 0, 54), "[####################] 100 %");
  EXPECT_EQ(progress_line(5, 10, 7.9, 20), "50 %") << "no room for a bar";
  for (const std::size_t columns : {4U, 20U, 43U, 44U, 60U, 80U, 134U, 300U}) {
    EXPECT_LE(progress_line(1, 100000, 3600, columns).size(), columns);
  }
}

}  // namespace
}  // namespace carveout::probe
