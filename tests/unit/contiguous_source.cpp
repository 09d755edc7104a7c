#include "unit/contiguous_source.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "unit/helpers.hpp"

namespace carveout::test {

class ContiguousSource final : public Source {
 public:
  explicit ContiguousSource(ContiguousPool& pool) : pool_(pool) {}

  [[nodiscard]] Description describe() const override {
    return {.name = "contiguous",
            .kind = DescriptorKind::kDmaBuf,
            .kernel_zeroes = true,
            .limit = Slices(pool_.slices_.size()).bytes(),
            .detail = ""};
  }
  Result<Buffer> allocate(Bytes size) override { return pool_.allocate(size); }
  Result<UniqueFd> share(const Buffer& buffer) override {
    if (pool_.share_error) return *pool_.share_error;
    return UniqueFd(::fcntl(buffer.descriptor.get(), F_DUPFD_CLOEXEC, 0));
  }
  Result<void> scrub(Buffer& /*buffer*/) override { return {}; }
  std::optional<std::string> take_warning() override {
    return std::exchange(pool_.warning, std::nullopt);
  }

 private:
  ContiguousPool& pool_;
};

std::unique_ptr<Source> ContiguousPool::source() {
  return std::make_unique<ContiguousSource>(*this);
}

void ContiguousPool::take(std::uint64_t first, std::uint64_t count) {
  take_back();
  change(first, count, Use::kFree, Use::kStrangers);
}

void ContiguousPool::leave(std::uint64_t first, std::uint64_t count) {
  change(first, count, Use::kStrangers, Use::kFree);
}

bool ContiguousPool::is_free(std::uint64_t slice) {
  take_back();
  return slices_.at(slice) == Use::kFree;
}

std::uint64_t ContiguousPool::free() {
  return count_of(Use::kFree);
}

std::uint64_t ContiguousPool::lent() {
  return count_of(Use::kOurs);
}

std::uint64_t ContiguousPool::taken() {
  return count_of(Use::kStrangers);
}

std::uint64_t ContiguousPool::longest_free() {
  take_back();
  std::uint64_t longest = 0;
  while (longest < slices_.size() && first_fit(longest + 1))
    ++longest;
  return longest;
}

std::optional<std::uint64_t> ContiguousPool::place_of(int descriptor) const {
  struct stat ours {};
  struct stat theirs {};
  if (::fstat(descriptor, &ours) != 0) return std::nullopt;
  for (const Extent& extent : extents_) {
    if (::fstat(extent.watch.get(), &theirs) == 0 && theirs.st_ino == ours.st_ino) {
      return extent.first;
    }
  }
  return std::nullopt;
}

std::vector<ContiguousPool::Ask> ContiguousPool::take_asks() {
  return std::exchange(asks_, {});
}

Result<Buffer> ContiguousPool::allocate(Bytes size) {
  const std::uint64_t count = Slices::holding(size).count();
  if (on_allocate) on_allocate();
  ++calls;
  asks_.push_back({.slices = count, .given = false});
  if (count == 0 || Slices(count).bytes() != size) {
    ADD_FAILURE() << "asked for " << size.count() << " bytes";
    return Error{Code::kInvalid, 0, "contiguous", "not whole slices"};
  }
  if (allocate_error) return *allocate_error;
  take_back();
  const auto first = first_fit(count);
  if (!first) return Error{Code::kExhausted, 0, "contiguous", "no such run"};
  Pipe pipe = make_pipe();
  change(*first, count, Use::kFree, Use::kOurs);
  extents_.push_back({.first = *first, .count = count, .watch = std::move(pipe.read_end)});
  asks_.back().given = true;
  zeroed += count;
  peak = std::max(peak, lent());
  return Buffer{std::move(pipe.write_end), size};
}

// What has no descriptor any more is free.
void ContiguousPool::take_back() {
  std::vector<pollfd> watched;
  watched.reserve(extents_.size());
  for (const Extent& extent : extents_)
    watched.push_back({.fd = extent.watch.get(), .events = 0, .revents = 0});
  if (::poll(watched.data(), watched.size(), 0) <= 0) return;
  std::vector<Extent> still;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if ((watched[i].revents & POLLHUP) != 0) {
      change(extents_[i].first, extents_[i].count, Use::kOurs, Use::kFree);
    } else {
      still.push_back(std::move(extents_[i]));
    }
  }
  extents_ = std::move(still);
}

void ContiguousPool::change(std::uint64_t first, std::uint64_t count, Use from, Use to) {
  for (std::uint64_t slice = first; slice < first + count; ++slice) {
    EXPECT_EQ(static_cast<int>(slices_.at(slice)), static_cast<int>(from)) << "slice " << slice;
    slices_.at(slice) = to;
  }
}

std::uint64_t ContiguousPool::count_of(Use use) {
  take_back();
  return static_cast<std::uint64_t>(std::count(slices_.begin(), slices_.end(), use));
}

std::optional<std::uint64_t> ContiguousPool::first_fit(std::uint64_t count) const {
  std::uint64_t run = 0;
  for (std::uint64_t slice = 0; slice < slices_.size(); ++slice) {
    run = slices_[slice] == Use::kFree ? run + 1 : 0;
    if (run == count) return slice + 1 - count;
  }
  return std::nullopt;
}

}  // namespace carveout::test
