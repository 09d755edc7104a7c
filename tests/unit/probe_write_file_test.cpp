// A file is there whole or not at all, and what was there before stays until then.

#include "files/write_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

#include "base/file.hpp"
#include "client/l2_class.hpp"
#include "unit/helpers.hpp"

namespace carveout::probe {
namespace {

using carveout::test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

mode_t mode_of(const std::string& path) {
  struct stat facts {};
  EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
  return facts.st_mode & 07777U;
}

// With all that is written beyond `limit` bytes of a file failing, as a full disk has it fail.
int with_little_room(rlim_t limit, const std::function<int()>& body) {
  return carveout::test::run_in_child([&] {
    const rlimit room{limit, limit};
    if (::setrlimit(RLIMIT_FSIZE, &room) != 0 || ::signal(SIGXFSZ, SIG_IGN) == SIG_ERR) return 99;
    return body();
  });
}

TEST(ProbeWriteFile, WritesAFileForEverybodyToRead) {
  const TemporaryDirectory directory;
  const mode_t before = ::umask(0077);
  const auto written = write_file(directory.path("a.json"), "{}\n");
  ::umask(before);
  ASSERT_TRUE(written) << written.error().describe();
  EXPECT_EQ(*read_text(directory.path("a.json"), 100), "{}\n");
  EXPECT_EQ(mode_of(directory.path("a.json")), 0644U);
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.json"));
}

TEST(ProbeWriteFile, TakesThePlaceOfAnotherAtOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.json", "before, and longer");
  const UniqueFd held(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(write_file(path, "after"));
  EXPECT_EQ(*read_text(path, 100), "after");
  EXPECT_EQ(*read_up_to(held.get(), 100, path), "before, and longer")
      << "whoever reads it meanwhile reads all of it";
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.json"));
}

TEST(ProbeWriteFile, LeavesNothingBehindWhereThereIsNoRoom) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.json", "before");
  const int code = with_little_room(4096, [&] {
    const auto written = write_file(path, std::string(8192, 'x'));
    if (written) return 1;
    if (written.error().number != EFBIG || written.error().context != path) return 2;
    return write_file(path, std::string(4096, 'y')) ? 0 : 3;
  });
  EXPECT_EQ(code, 0) << "what fits is written all the same";
  EXPECT_EQ(*read_text(path, 10'000), std::string(4096, 'y'));
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.json"));
}

TEST(ProbeWriteFile, LeavesWhatWasThereWhereThereIsNoRoom) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.json", "before");
  EXPECT_EQ(with_little_room(10, [&] { return write_file(path, "longer than ten") ? 1 : 0; }), 0);
  EXPECT_EQ(with_little_room(
                10, [&] { return write_file(directory.path("b"), "longer than ten") ? 1 : 0; }),
            0);
  EXPECT_EQ(*read_text(path, 100), "before");
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.json"));
}

TEST(ProbeWriteFile, NamesWhatCannotBeWritten) {
  const TemporaryDirectory directory;
  (void)directory.file("file", "");
  ASSERT_EQ(::symlink("nowhere", directory.path("dangling").c_str()), 0);
  struct Case {
    std::string path;
    const char* said;
  };
  const Case cases[] = {
      {directory.path("none/a.json"), "No such file or directory"},
      {directory.path("none/a.json"), "/none: it must exist (mkdir -p)"},
      {directory.path("file/a.json"), "Not a directory"},
      {directory.path(), "Is a directory"},
      {directory.path("dangling"), "is a symbolic link to a file that does not exist"},
      {"", "No such file or directory"},
  };
  for (const Case& one : cases) {
    for (const auto& result : {check_writable(one.path), write_file(one.path, "x")}) {
      ASSERT_FALSE(result) << one.path;
      EXPECT_EQ(result.error().context, one.path);
      EXPECT_THAT(result.error().describe(), HasSubstr(one.said));
    }
  }
  EXPECT_THAT(names_in(directory.path()), ElementsAre("dangling", "file"));
  const auto full = write_file("/dev/full", "x");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().number, ENOSPC);
}

TEST(ProbeWriteFile, SaysWhatMakesTheDirectoryOfTheProbesResult) {
  const std::string path = client::kL2ClassFile;
  if (::access(directory_of(path).c_str(), F_OK) == 0) GTEST_SKIP() << "waived: this host has it";
  const auto result = check_writable(path);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("systemd-tmpfiles --create carveout.conf"));
}

TEST(ProbeWriteFile, HasNoRightThatItsUserLacks) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be nobody";
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.json", "before", 0644);
  ASSERT_EQ(::chmod(directory.file("open.json", "before").c_str(), 0666), 0);
  ASSERT_EQ(::chmod(directory.path().c_str(), 01777), 0);
  const int code = carveout::test::run_in_child([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 99;
    const auto other = check_writable(path);  // another's file in a directory like /tmp
    if (other || other.error().number != EACCES) return 1;
    if (write_file(path, "after")) return 2;
    const auto open_to_all = check_writable(directory.path("open.json"));
    if (open_to_all || open_to_all.error().number != EPERM) return 4;
    return check_writable(directory.path("b.json")) ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  const int closed = carveout::test::run_in_child([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 99;
    const auto refused = check_writable(directory.path("b.json"));
    return !refused && refused.error().number == EACCES ? 0 : 1;
  });
  EXPECT_EQ(closed, 0);
  EXPECT_EQ(*read_text(path, 100), "before");
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.json", "open.json"));
}

TEST(ProbeWriteFile, LeavesNothingBehindWhereNoPlaceCanBeTaken) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.json", "before");
  constexpr int kNotHere = 98;
  const int code = carveout::test::run_in_child([&] {
    // A file that something is mounted on cannot be renamed over.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) {
      return kNotHere;
    }
    const auto written = write_file(path, "after");
    return !written && written.error().number == EBUSY && written.error().context == path ? 0 : 1;
  });
  if (code == kNotHere) GTEST_SKIP() << "needs mounts of its own";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(*read_text(path, 100), "before");
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.json"));
}

TEST(ProbeWriteFile, ChecksWithoutATrace) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.json", "before");
  const std::size_t descriptors = carveout::test::open_descriptors();
  EXPECT_TRUE(check_writable(path));
  EXPECT_TRUE(check_writable(directory.path("b.json")));
  EXPECT_EQ(*read_text(path, 100), "before");
  EXPECT_THAT(names_in(directory.path()), ElementsAre("a.json"));
  EXPECT_EQ(carveout::test::open_descriptors(), descriptors);
}

TEST(ProbeWriteFile, FollowsASymbolicLink) {
  const TemporaryDirectory directory;
  (void)directory.file("deep/a.json", "before");
  ASSERT_EQ(::symlink("deep/a.json", directory.path("link").c_str()), 0);
  ASSERT_TRUE(check_writable(directory.path("link")));
  ASSERT_TRUE(write_file(directory.path("link"), "after"));
  EXPECT_EQ(*read_text(directory.path("deep/a.json"), 100), "after");
  struct stat facts {};
  ASSERT_EQ(::lstat(directory.path("link").c_str(), &facts), 0);
  EXPECT_TRUE(S_ISLNK(facts.st_mode));
  EXPECT_THAT(names_in(directory.path("deep")), ElementsAre("a.json"));
}

TEST(ProbeWriteFile, KnowsAFileByEachOfItsNames) {
  const TemporaryDirectory directory;
  const std::string there = directory.file("deep/a.json", "");
  ASSERT_EQ(::symlink("deep", directory.path("link").c_str()), 0);
  ASSERT_EQ(::symlink("deep/a.json", directory.path("file").c_str()), 0);
  const std::string twins[] = {there, directory.path("deep/../deep//a.json"),
                               directory.path("link/a.json"), directory.path("file")};
  for (const std::string& one : twins)
    EXPECT_TRUE(are_one_file(there, one)) << one;
  // Neither is there yet.
  EXPECT_TRUE(are_one_file(directory.path("deep/b"), directory.path("link/./b")));
  EXPECT_TRUE(are_one_file("not-there", "./not-there"));
  EXPECT_FALSE(are_one_file(there, directory.path("deep/b")));
  EXPECT_FALSE(are_one_file("/dev/null", "/dev/null")) << "takes both";
  EXPECT_FALSE(are_one_file("", "")) << "no file at all";
}

TEST(ProbeWriteFile, WritesIntoAPipe) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ASSERT_TRUE(check_writable(path));
  std::string got;
  std::thread reader([&] {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    got = carveout::test::read_all(file.get());
  });
  const auto written = write_file(path, std::string(200'000, 'x'));
  reader.join();
  ASSERT_TRUE(written) << written.error().describe();
  EXPECT_EQ(got.size(), 200'000U);
  struct stat facts {};
  ASSERT_EQ(::lstat(path.c_str(), &facts), 0);
  EXPECT_TRUE(S_ISFIFO(facts.st_mode));
}

// A shell's redirection: what others have written to it stays.
TEST(ProbeWriteFile, WritesIntoAnOpenFileByItsDescriptor) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("out", "");
  // As `> out` opens it: what is opened anew begins at its beginning.
  const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(::write(out.get(), "table\n", 6), 6);
  ASSERT_TRUE(write_file("/proc/self/fd/" + std::to_string(out.get()), "json"));
  EXPECT_EQ(*read_text(path, 100), "table\njson");
  struct stat by_path {
  }, by_descriptor{};
  ASSERT_EQ(::stat(path.c_str(), &by_path), 0);
  ASSERT_EQ(::fstat(out.get(), &by_descriptor), 0);
  EXPECT_EQ(by_path.st_ino, by_descriptor.st_ino);
}

}  // namespace
}  // namespace carveout::probe
