#include "proc_scan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "unit/helpers.hpp"

namespace carveout::ctl {
namespace {

using test::make_pipe;
using test::Pipe;
using test::TemporaryDirectory;
using test::wait_readable;
using testing::IsEmpty;

// --- names ---

TEST(ParseBuffer, KnowsMemoryFilesAndDmaBufs) {
  const auto memory = parse_buffer("/memfd:carveout (deleted)");
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->kind, BufferKind::kMemfd);
  EXPECT_EQ(memory->name, "carveout");
  const auto dma_buf = parse_buffer("/dmabuf:carveout");
  ASSERT_TRUE(dma_buf.has_value());
  EXPECT_EQ(dma_buf->kind, BufferKind::kDmaBuf);
  EXPECT_EQ(dma_buf->name, "carveout");
}

TEST(ParseBuffer, TakesNamesAsTheyAre) {
  EXPECT_EQ(parse_buffer("/dmabuf:")->name, "");
  EXPECT_EQ(parse_buffer("/dmabuf: two words (deleted) x")->name, " two words (deleted) x");
  EXPECT_EQ(parse_buffer("/memfd:carveout")->name, "carveout");
  EXPECT_EQ(parse_buffer("/memfd:carveout (deleted) (deleted)")->name, "carveout (deleted)")
      << "another's, who called it so";
  EXPECT_EQ(parse_buffer("/memfd:a/b\n (deleted)")->name, "a/b\n");
}

TEST(ParseBuffer, LeavesEverythingElse) {
  for (const char* path : {"", "/", "/memfd", "memfd:carveout", "/dev/shm/memfd:carveout",
                           "socket:[1]", "anon_inode:[eventfd]", "/tmp/dmabuf:carveout", "[heap]"})
    EXPECT_FALSE(parse_buffer(path).has_value()) << path;
}

// --- lines of maps ---

TEST(ParseMapping, OfAMemoryFile) {
  const auto mapping = parse_mapping(
      "7f21c4a00000-7f21c4c00000 rw-s 00200000 00:1f 1043                       "
      "/memfd:carveout (deleted)");
  ASSERT_TRUE(mapping.has_value());
  EXPECT_EQ(mapping->buffer.kind, BufferKind::kMemfd);
  EXPECT_EQ(mapping->buffer.name, "carveout");
  EXPECT_EQ(mapping->device, makedev(0, 0x1f));
  EXPECT_EQ(mapping->inode, 1043U);
  EXPECT_EQ(mapping->end, mib(4)) << "from its offset on";
}

TEST(ParseMapping, OfADmaBufWithSpacesInItsName) {
  const auto mapping = parse_mapping("1000-3000 r--s 00000000 00:0b 7 /dmabuf:my  own\\012name ");
  ASSERT_TRUE(mapping.has_value());
  EXPECT_EQ(mapping->buffer.kind, BufferKind::kDmaBuf);
  EXPECT_EQ(mapping->buffer.name, "my  own\\012name ");
  EXPECT_EQ(mapping->inode, 7U);
}

TEST(ParseMapping, OfHugeNumbers) {
  const auto mapping = parse_mapping(
      "0-ffffffffffffffff ---p fffffffffffff000 fff:fffff 18446744073709551615 /dmabuf:x");
  ASSERT_TRUE(mapping.has_value());
  EXPECT_EQ(mapping->inode, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(mapping->end, Bytes(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_EQ(mapping->device, makedev(0xfff, 0xfffff));
}

TEST(ParseMapping, LeavesEverythingElse) {
  for (const char* line :
       {"",
        " ",
        "-",
        "junk",
        "/memfd:carveout (deleted)",
        "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ",
        "7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [heap]",
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 99   /usr/lib/a /memfd:carveout (deleted)",
        "1000-2000 rw-s 00000000 00:01 0 /memfd:carveout (deleted)",           // no inode
        "2000-1000 rw-s 00000000 00:01 5 /memfd:carveout (deleted)",           // backwards
        "1000-1000 rw-s 00000000 00:01 5 /memfd:carveout (deleted)",           // nothing
        "1000-2000 rw-s 00000000 00:01 -5 /memfd:carveout (deleted)",          // below nothing
        "1000-2000 rw-s 00000000 00:01 5x /memfd:carveout (deleted)",          // no number
        "1000-2000 rw-s 00000000 0001 5 /memfd:carveout (deleted)",            // no device
        "1000-g000 rw-s 00000000 00:01 5 /memfd:carveout (deleted)",           // no address
        "1000-2000 rw-s  00:01 5 /memfd:carveout (deleted)",                   // no offset
        "1000-2000 rw-s 00000000 00:01 18446744073709551616 /memfd:carveout",  // beyond 64 bits
        "11111111111111111-2 rw-s 00000000 00:01 5 /memfd:carveout",
        "1000-2000 rw-s 00000000 00:01",
        "1000-2000 rw-s 00000000 00:01 5",
        "1000-2000 rw-s 00000000 00:01 5 "})
    EXPECT_FALSE(parse_mapping(line).has_value()) << line;
}

// --- a made-up tree ---

class MadeUpProc : public testing::Test {
 protected:
  void put(const std::string& process, const std::string& maps) const {
    (void)tree_.file(process + "/maps", maps);
    (void)tree_.file(process + "/status",
                     "Name:\tany\\nUid:\t9\nUmask:\t0022\nUid:\t1\t22\t3\t4\nGid:\t5\t5\t5\t5\n");
    (void)tree_.file(process + "/comm", "any\nUid:\n");
  }
  [[nodiscard]] ProcScan scan(const std::set<pid_t>& leave_out = {}) const {
    auto scanned = scan_proc(tree_.path(), leave_out);
    EXPECT_TRUE(scanned) << scanned.error().describe();
    return *std::move(scanned);
  }

  const TemporaryDirectory tree_;
};

constexpr const char* kLine = "1000-3000 rw-s 00000000 00:01 5 /memfd:carveout (deleted)\n";

TEST_F(MadeUpProc, SaysWhoHoldsWhat) {
  put("70000001", cat("garbage\n\n", kLine, "9000-a000 rw-p 00000000 00:00 0 [stack]\n",
                      "4000-5000 rw-s 00004000 00:01 5 /memfd:carveout (deleted)\n",
                      "6000-7000 rw-s 00000000 00:02 5 /dmabuf:other\n",
                      "7000-8000 rw-s 00000000 00:01 6 /memfd:other (deleted)\n"));
  const ProcScan found = scan();
  ASSERT_EQ(found.holdings.size(), 2U);
  const Holding& memory = found.holdings[0];
  EXPECT_EQ(memory.kind, BufferKind::kMemfd);
  EXPECT_TRUE(memory.named);
  EXPECT_EQ(memory.inode, 5U);
  EXPECT_EQ(memory.device, makedev(0, 1));
  EXPECT_EQ(memory.size, Bytes(0)) << "only a descriptor tells it";
  EXPECT_EQ(memory.mapped, kib(20));
  EXPECT_EQ(memory.mappings, 2U);
  EXPECT_EQ(memory.descriptors, 0U);
  EXPECT_EQ(memory.pid, 70000001);
  EXPECT_EQ(memory.uid, 22U);
  EXPECT_EQ(memory.command, "any\nUid:");
  EXPECT_EQ(found.holdings[1].kind, BufferKind::kDmaBuf);
  EXPECT_FALSE(found.holdings[1].named);
  EXPECT_EQ(found.unexamined, 0U);
  EXPECT_TRUE(found.hides) << "there is no process 1";
}

TEST_F(MadeUpProc, TellsApartWhatHasOneInodeOnTwoFileSystems) {
  put("70000001", cat(kLine, "4000-5000 rw-s 00000000 00:02 5 /memfd:carveout (deleted)\n"));
  EXPECT_EQ(scan().holdings.size(), 2U);
}

TEST_F(MadeUpProc, LeavesOutWhatItIsTold) {
  put("70000001", kLine);
  put("70000002", kLine);
  const ProcScan found = scan({70000001});
  ASSERT_EQ(found.holdings.size(), 1U);
  EXPECT_EQ(found.holdings[0].pid, 70000002);
}

TEST_F(MadeUpProc, TakesProcessesOnly) {
  for (const char* name : {"self", "7x", "x7", "-7", "99999999999999999999"})
    put(name, kLine);
  put("1", "");
  const ProcScan found = scan();
  EXPECT_THAT(found.holdings, IsEmpty());
  EXPECT_FALSE(found.hides);
}

TEST_F(MadeUpProc, CountsWhatItMayNotRead) {
  put("70000001", kLine);
  const auto put_status = [&](const char* process, const char* status) {
    (void)tree_.file(cat(process, "/status"), status);
    (void)tree_.file(cat(process, "/maps/is a directory"), "");
  };
  put_status("70000002", "Name:\tany\nVmSize:\t  8192 kB\nThreads:\t1\n");
  put_status("70000003", "Name:\tits first thread has ended\nThreads:\t2\n");
  put_status("70000004", "Name:\thas ended, or is the kernel's\nThreads:\t1\n");
  (void)tree_.file("70000005/maps/is a directory", "");  // it goes meanwhile
  (void)tree_.file("70000006/fd", "is a file");
  (void)tree_.file("70000006/status/is a directory", "");
  (void)tree_.file("70000007/empty", "as one that has ended");
  const ProcScan found = scan();
  EXPECT_EQ(found.holdings.size(), 1U);
  EXPECT_EQ(found.unexamined, 3U);
}

TEST_F(MadeUpProc, ReadsLongMaps) {
  std::string maps;
  for (int i = 1; i <= 20000; ++i) {
    maps += cat("7f21c4a00000-7f21c4c00000 rw-s 00000000 08:01 ", i, " /usr/lib/",
                std::string(static_cast<std::size_t>(i % 100), 'x'), "\n");
    if (i % 1000 == 0) maps += kLine;
  }
  put("70000001", cat(maps, std::string(300000, 'y'), "\n", kLine));
  const ProcScan found = scan();
  ASSERT_EQ(found.holdings.size(), 1U);
  EXPECT_EQ(found.holdings[0].mappings, 21U);
}

TEST_F(MadeUpProc, LooksAtTheOtherThreadsIfTheFirstHasEnded) {
  put("70000001", "");
  (void)tree_.file("70000001/task/70000001/maps", "");
  (void)tree_.file("70000001/task/70000002/maps", kLine);
  (void)tree_.file("70000001/task/70000003/maps", kLine);
  const ProcScan found = scan();
  ASSERT_EQ(found.holdings.size(), 1U);
  EXPECT_EQ(found.holdings[0].mappings, 1U);
  EXPECT_EQ(found.holdings[0].pid, 70000001);
}

TEST_F(MadeUpProc, ThatIsNotThere) {
  const auto scanned = scan_proc(tree_.path("missing"), {});
  ASSERT_FALSE(scanned);
  EXPECT_EQ(scanned.error().number, ENOENT);
}

// --- the real one ---

[[noreturn]] void stay() {
  for (;;)
    ::pause();
}

// A child that does `hold` with a memory file named "carveout", of 4 MiB, and stays.
class Child {
 public:
  using Hold = std::function<void(UniqueFd memory, int ready)>;

  explicit Child(const Hold& hold, const char* name = "carveout") {
    UniqueFd memory(::memfd_create(name, MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(memory.get(), 4 << 20), 0);
    struct stat status {};
    EXPECT_EQ(::fstat(memory.get(), &status), 0);
    inode_ = status.st_ino;
    device_ = status.st_dev;
    Pipe ready = make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::prctl(PR_SET_NAME, "a\nholder");
      hold(std::move(memory), ready.write_end.get());
      (void)!::write(ready.write_end.get(), "r", 1);
      stay();
    }
    memory.reset();
    EXPECT_TRUE(wait_readable(ready.read_end.get(), std::chrono::seconds(30)));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child(Child&&) = delete;
  Child& operator=(Child&&) = delete;
  ~Child() { end(); }

  void kill() const {
    ::kill(pid_, SIGKILL);
    siginfo_t ended;
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT), 0);
  }
  void end() {
    if (pid_ < 0) return;
    kill();
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // What is found of its memory file, whoever has it.
  [[nodiscard]] std::vector<Holding> found() const {
    const auto scan = scan_proc("/proc", {::getpid()});
    EXPECT_TRUE(scan) << scan.error().describe();
    std::vector<Holding> mine;
    for (const Holding& holding : scan->holdings)
      if (holding.inode == inode_ && holding.device == device_) mine.push_back(holding);
    return mine;
  }

 private:
  pid_t pid_ = -1;
  std::uint64_t inode_ = 0;
  std::uint64_t device_ = 0;
};

void map(const UniqueFd& memory, std::size_t size) {
  (void)::mmap(nullptr, size, PROT_READ, MAP_SHARED, memory.get(), 0);
}

// {descriptors, mappings} of the one who holds something.
std::pair<std::uint64_t, std::uint64_t> held(const Child& child) {
  const auto found = child.found();
  if (found.size() != 1) return {99, found.size()};
  EXPECT_EQ(found[0].pid, child.pid());
  EXPECT_EQ(found[0].uid, ::geteuid());
  EXPECT_EQ(found[0].command, "a\nholder");
  EXPECT_TRUE(found[0].named);
  return {found[0].descriptors, found[0].mappings};
}

TEST(ScanOfProc, FindsADescriptor) {
  const Child child([](UniqueFd memory, int /*ready*/) { (void)memory.release(); });
  EXPECT_EQ(held(child), std::pair(1UL, 0UL));
  EXPECT_EQ(child.found().at(0).size, mib(4));
}

TEST(ScanOfProc, FindsAMapping) {
  const Child child([](UniqueFd memory, int /*ready*/) { map(memory, 2 << 20); });
  EXPECT_EQ(held(child), std::pair(0UL, 1UL));
  EXPECT_EQ(child.found().at(0).size, Bytes(0));
  EXPECT_EQ(child.found().at(0).mapped, mib(2));
}

TEST(ScanOfProc, FindsBoth) {
  const Child child([](UniqueFd memory, int /*ready*/) {
    map(memory, 1 << 20);
    map(memory, 4 << 20);
    (void)!::dup(memory.get());
    (void)!::dup(memory.release());
  });
  EXPECT_EQ(held(child).first, 3U);
  EXPECT_GE(held(child).second, 1U) << "two that touch are one";
  EXPECT_EQ(child.found().at(0).mapped, mib(4));
}

TEST(ScanOfProc, LeavesAMemoryFileOfAnotherName) {
  const Child child([](UniqueFd memory, int /*ready*/) { (void)memory.release(); }, "carveout2");
  EXPECT_THAT(child.found(), IsEmpty());
}

TEST(ScanOfProc, FindsNothingOfOneThatHasEnded) {
  Child child([](UniqueFd memory, int /*ready*/) {
    map(memory, 4096);
    (void)memory.release();
  });
  child.kill();
  EXPECT_THAT(child.found(), IsEmpty()) << "not yet waited for";
  child.end();
  EXPECT_THAT(child.found(), IsEmpty());
}

TEST(ScanOfProc, FindsWhatAThreadKeepsForItself) {
  const Child child([](UniqueFd memory, int /*ready*/) {
    static std::atomic<bool> apart = false;
    // All but one of the tables of descriptors lose it.
    std::thread([] {
      apart = ::unshare(CLONE_FILES) == 0;
      stay();
    }).detach();
    while (!apart)
      std::this_thread::yield();
    memory.reset();
  });
  EXPECT_EQ(held(child), std::pair(1UL, 0UL));
}

TEST(ScanOfProc, FindsWhatIsLeftBehindByTheFirstThread) {
  const Child child([](UniqueFd memory, int ready) {
    map(memory, 4096);
    (void)memory.release();
    std::thread([] { stay(); }).detach();
    std::thread([ready] {
      const std::string path = cat("/proc/self/task/", ::getpid(), "/status");
      for (std::string status; status.find("\nState:\tZ") == std::string::npos;)
        status = read_text(path, 4096).value();
      (void)!::write(ready, "r", 1);
      stay();
    }).detach();
    ::syscall(SYS_exit, 0);
  });
  EXPECT_EQ(held(child), std::pair(1UL, 1UL));
}

}  // namespace
}  // namespace carveout::ctl
