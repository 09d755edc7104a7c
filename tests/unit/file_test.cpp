#include "base/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "unit/helpers.hpp"

namespace carveout {
namespace {

TEST(ReadText, ReadsAWholeFileOrItsBeginning) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("text", "0123456789");
  EXPECT_EQ(*read_text(path, 100), "0123456789");
  EXPECT_EQ(*read_text(path, 10), "0123456789");
  EXPECT_EQ(*read_text(path, 4), "0123");
  EXPECT_EQ(*read_text(path, 0), "");
  EXPECT_EQ(*read_text(directory.file("empty", ""), 100), "");
}

TEST(ReadText, NamesTheFileThatItCannotRead) {
  const test::TemporaryDirectory directory;
  const auto missing = read_text(directory.path("missing"), 10);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kSystem);
  EXPECT_EQ(missing.error().number, ENOENT);
  EXPECT_EQ(missing.error().context, directory.path("missing"));
  const auto folder = read_text(directory.path(), 10);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().number, EISDIR);
}

TEST(ReadText, LeavesNoDescriptorOpen) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("text", "x");
  const std::size_t before = test::open_descriptors();
  ASSERT_TRUE(read_text(path, 10));
  ASSERT_FALSE(read_text(directory.path(), 10));
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST(ReadUpTo, GoesOnWhereTheFileStands) {
  const test::TemporaryDirectory directory;
  const UniqueFd file(::open(directory.file("text", "abcdef").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(*read_up_to(file.get(), 2, "text"), "ab");
  EXPECT_EQ(*read_up_to(file.get(), 2, "text"), "cd");
}

TEST(ReadUpTo, JoinsWhatComesInPieces) {
  test::Pipe pipe = test::make_pipe();
  std::thread writer([&pipe] {
    for (const char* part : {"a", "b", "c"}) {
      EXPECT_EQ(::write(pipe.write_end.get(), part, 1), 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    pipe.write_end.reset();
  });
  const auto text = read_up_to(pipe.read_end.get(), 100, "pipe");
  writer.join();
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "abc");
}

}  // namespace
}  // namespace carveout
