#include "hold.hpp"

#include <algorithm>
#include <utility>

namespace carveout::daemon {
namespace {

Bytes halved(Bytes size) {
  return Slices(Slices::holding(size).count() / 2).bytes();
}

bool is_smaller(const Buffer& a, const Buffer& b) {
  return a.size < b.size;
}

}  // namespace

Bytes Hold::held() const {
  Bytes sum;
  for (const Buffer& buffer : held_)
    sum = sum + buffer.size;
  return sum;
}

Bytes Hold::missing() const {
  const Bytes have = lent_ + held();
  return have < wanted_ ? wanted_ - have : Bytes(0);
}

Bytes Hold::largest() const {
  const auto found = std::max_element(held_.begin(), held_.end(), is_smaller);
  return found == held_.end() ? Bytes(0) : found->size;
}

void Hold::fill() {
  for (Bytes piece = missing(); piece >= kSliceBytes;) {
    auto buffer = source_->allocate(piece);
    if (buffer) {
      joined_ = joined_ && held_.empty();
      held_.push_back(*std::move(buffer));
      piece = std::min(piece, missing());
    } else {
      refusal_ = buffer.error();
      piece = halved(piece);
    }
  }
}

void Hold::retry() {
  if (missing() < kSliceBytes) return;
  if (auto slice = source_->allocate(kSliceBytes); !slice) {
    refusal_ = slice.error();
    return;
  }
  fill();
}

void Hold::join() {
  if (std::exchange(joined_, true)) return;
  const Bytes sum = held();
  held_.clear();
  auto whole = source_->allocate(sum);
  if (whole) {
    held_.push_back(*std::move(whole));
    return;
  }
  for (Bytes piece = halved(sum); piece >= kSliceBytes && held() < sum;) {
    auto buffer = source_->allocate(std::min(piece, sum - held()));
    if (buffer) {
      held_.push_back(*std::move(buffer));
    } else {
      refusal_ = buffer.error();
      piece = halved(piece);
    }
  }
}

Result<Buffer> Hold::allocate(Bytes size) {
  const Bytes before = held();
  make_room(size);
  auto buffer = source_->allocate(size);
  if (!buffer && !held_.empty()) {
    // It needs more room than its size: memory that lies together.
    held_.clear();
    buffer = source_->allocate(size);
  }
  if (buffer) {
    lent_ = lent_ + size;
  } else {
    refusal_ = buffer.error();
  }
  take_back(buffer ? before - std::min(before, size) : before);
  return buffer;
}

// What was dropped for a grant and not needed: as one piece if it can be.
void Hold::take_back(Bytes rest) {
  const Bytes dropped = rest - std::min(rest, held());
  if (dropped >= kSliceBytes) {
    if (auto piece = source_->allocate(dropped)) held_.push_back(*std::move(piece));
  }
  retry();
}

// Drops the smallest held buffer that is large enough, or else all of them.
void Hold::make_room(Bytes size) {
  std::sort(held_.begin(), held_.end(), is_smaller);
  const auto fits = std::find_if(held_.begin(), held_.end(),
                                 [size](const Buffer& buffer) { return buffer.size >= size; });
  if (fits == held_.end()) {
    held_.clear();
  } else {
    held_.erase(fits);
  }
}

}  // namespace carveout::daemon
