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

bool was_had(Bytes size, const std::vector<Bytes>& known) {
  return std::any_of(known.begin(), known.end(), [size](Bytes one) { return one >= size; });
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
  for (Bytes piece = amount; piece >= kSliceBytes && held_.size() < most_pieces_;) {
    auto buffer = ask(piece, known);
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

// What has been had as one is asked for more than once: CMA refuses now and then what it has, while
// pages of others' are on their way out of it.
Result<Buffer> Hold::ask(Bytes size, const std::vector<Bytes>& known) {
  auto buffer = source_->allocate(size);
  if (!was_had(size, known)) return buffer;
  for (int more = 2; more > 0 && !buffer && buffer.error().code == Code::kExhausted; --more)
    buffer = source_->allocate(size);
  return buffer;
}

std::vector<Bytes> Hold::sizes() const {
  std::vector<Bytes> sizes;
  for (const Buffer& buffer : held_)
    sizes.push_back(buffer.size);
  return sizes;
}

void Hold::retry() {
  if (missing() < kSliceBytes) return;
  if (held_.size() >= most_pieces_) {
    joined_ = false;  // fewer pieces make room for more
    return;
  }
  if (auto slice = source_->allocate(kSliceBytes); !slice) {
    refusal_ = slice.error();
    return;
  }
  fill();
}

void Hold::join() {
  const bool joined = std::exchange(joined_, true);
  if (held_.size() < 2 || (joined && !is_broken())) return;
  std::vector<Bytes> known = sizes();
  const Bytes sum = held();
  if (is_alone()) known.push_back(sum);
  held_.clear();
  take(sum, known);
  joined_ = true;
  if (held_.size() < 2) broken_ = false;
}

bool Hold::is_alone() const {
  return lent_ == Bytes(0) && missing() == Bytes(0);
}

bool Hold::is_broken() const {
  return held_.size() > 1 && (broken_ || is_alone());
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
  const Bytes amount = rest - std::min(rest, held());
  take(amount, known);
  if (before != 0 && held_.size() == before + 1) joined_ = joined;  // less of what there was
  if (held_.size() > before + 1 && was_had(amount, known)) broken_ = true;
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
