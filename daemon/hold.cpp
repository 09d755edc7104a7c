#include "hold.hpp"

#include <algorithm>
#include <utility>

namespace carveout::daemon {
namespace {

// What to ask for after `size` was refused: half of it, or a size below it that was had before.
Bytes below(Bytes size, const std::vector<Bytes>& known) {
  Bytes next = Slices(Slices::holding(size).count() / 2).bytes();
  for (const Bytes one : known) {
    if (one < size) next = std::max(next, one);
  }
  return next;
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
  take(missing(), {});
}

void Hold::take(Bytes amount, const std::vector<Bytes>& known) {
  const std::size_t before = held_.size();
  const Bytes goal = held() + amount;
  for (Bytes piece = amount; piece >= kSliceBytes;) {
    auto buffer = source_->allocate(piece);
    if (buffer) {
      held_.push_back(*std::move(buffer));
      piece = std::min(piece, goal - held());
    } else {
      refusal_ = buffer.error();
      piece = below(piece, known);
    }
  }
  if (held_.size() == before) return;
  // Of nothing that was held, all of it has been asked for as one already.
  joined_ = before == 0 && (held_.size() == 1 || held() == amount);
}

std::vector<Bytes> Hold::sizes() const {
  std::vector<Bytes> sizes;
  for (const Buffer& buffer : held_)
    sizes.push_back(buffer.size);
  return sizes;
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
  if (std::exchange(joined_, true) || held_.size() < 2) return;
  const std::vector<Bytes> known = sizes();
  const Bytes sum = held();
  held_.clear();
  take(sum, known);
  joined_ = true;
}

Result<Buffer> Hold::allocate(Bytes size) {
  const Bytes before = held();
  const std::vector<Bytes> known = sizes();
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
  take_back(buffer ? before - std::min(before, size) : before, known);
  return buffer;
}

// What was dropped for a grant and not needed: as one piece if it can be.
void Hold::take_back(Bytes rest, const std::vector<Bytes>& known) {
  const std::size_t before = held_.size();
  const bool joined = joined_;
  take(rest - std::min(rest, held()), known);
  if (before != 0 && held_.size() == before + 1) joined_ = joined;  // less of what there was
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
