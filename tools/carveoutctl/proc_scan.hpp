#pragma once

// Who has memory files and dma-bufs open or mapped, by /proc.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace carveout::ctl {

enum class BufferKind { kMemfd, kDmaBuf };

// What one process has of one buffer.
struct Holding {
  BufferKind kind = BufferKind::kMemfd;
  bool named = false;  // "carveout", as lenders name what they lend; a dma-buf can be renamed
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  Bytes size;    // of the buffer; 0: not known
  Bytes mapped;  // up to where it is mapped
  std::uint64_t descriptors = 0;
  std::uint64_t mappings = 0;

  pid_t pid = 0;
  std::uint64_t uid = 0;  // the effective one, as a socket's peer is known by
  std::string command;    // its own words: not printable as they are
};

struct ProcScan {
  std::vector<Holding> holdings;  // by process
  std::uint64_t unexamined = 0;   // processes whose descriptors or mappings may not be read
  bool hides = false;             // processes are left out of the listing itself (hidepid)
};

// All dma-bufs, and the memory files named "carveout", that the processes below `root` (/proc)
// hold, but for those of `leave_out`. Opens none of them. Not seen: what is in flight in a socket,
// and what only a driver holds. The error: `root` cannot be read.
Result<ProcScan> scan_proc(const std::string& root, const std::set<pid_t>& leave_out);

// --- what a scan reads ---

struct BufferName {
  BufferKind kind = BufferKind::kMemfd;
  std::string_view name;
};
// Of what a descriptor's link points to, or of a mapping's file: "/memfd:carveout (deleted)".
// Nothing if that is no buffer.
std::optional<BufferName> parse_buffer(std::string_view path);

struct MappedBuffer {
  BufferName buffer;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  Bytes end;  // of the range in the buffer
};
// A line of /proc/PID/maps. Nothing if it is of anything but a buffer.
std::optional<MappedBuffer> parse_mapping(std::string_view line);

}  // namespace carveout::ctl
