#include "refill.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace carveout::daemon {
namespace {

constexpr std::chrono::seconds kAgainAfter{1};
// How long held pieces wait to be made one, so that many releases cost that once.
constexpr std::chrono::milliseconds kJoinAfter{200};
// ... at most, while joining does not help: somebody has what lies between.
constexpr std::chrono::milliseconds kJoinAfterAtMost{3200};
// ... and where it is known what there is in one, which the kernel may yet give.
constexpr std::chrono::milliseconds kJoinBrokenAfterAtMost{600'000};

}  // namespace

// Tells the hold what has come back, and has it take what it lacks, and perhaps make one of it.
class Refill::Task final : public Worker::Task {
 public:
  Task(Refill& refill, Bytes come_back, bool join)
      : refill_(refill), come_back_(come_back), join_(join) {}

  void work() override {
    Hold& hold = refill_.hold_;
    if (come_back_ == Bytes(0)) {
      hold.retry();
    } else {
      hold.give_back(come_back_);
      hold.fill();
    }
    const Bytes before = hold.largest();
    if (join_) hold.join();
    figures_ = hold.figures();
    helped_ = figures_.largest > before;
  }

  void done() override {
    refill_.under_way_ = false;
    refill_.untold_ = refill_.untold_ - come_back_;
    if (join_) {
      refill_.join_after_ =
          helped_ ? kJoinAfter : std::min(2 * refill_.join_after_, kJoinBrokenAfterAtMost);
    }
    refill_.submit();
    refill_.apply(figures_);
  }

 private:
  Refill& refill_;
  Bytes come_back_;
  bool join_;
  bool helped_ = false;
  HoldFigures figures_ = {};
};

Refill::Refill(EventLoop& loop, Worker& worker, Reservation& reservation, Hold& hold)
    : loop_(loop),
      worker_(worker),
      reservation_(reservation),
      hold_(hold),
      join_after_(kJoinAfter) {}

void Refill::take(Bytes come_back) {
  if (come_back != Bytes(0)) reservation_.set_certain(std::nullopt);
  untold_ = untold_ + come_back;
  come_back_ = come_back_.value_or(Bytes(0)) + come_back;
  submit();
}

// One at a time: what comes back meanwhile is taken in one go then.
void Refill::submit() {
  if (under_way_ || (!come_back_ && !join_wanted_)) return;
  under_way_ = true;
  const Bytes come_back = std::exchange(come_back_, std::nullopt).value_or(Bytes(0));
  const bool join = std::exchange(join_wanted_, false);
  worker_.submit(std::make_unique<Task>(*this, come_back, join));
}

// Until all that has come back is held again, as one as far as it can be, what is free is believed.
void Refill::apply(const HoldFigures& figures) {
  if (untold_ != Bytes(0)) return reservation_.set_certain(std::nullopt);
  reservation_.set_missing(Slices::holding(figures.missing));
  if (figures.joined) {
    reservation_.set_certain(Slices::holding(figures.largest));
  } else {
    reservation_.set_certain(std::nullopt);
    join_after_ = std::min(join_after_, kJoinAfterAtMost);
  }
  if (!figures.joined || figures.broken) join_soon();
  if (figures.missing == Bytes(0)) return;
  auto timer = loop_.after(kAgainAfter, [this] { take(Bytes(0)); });
  if (timer) again_ = *std::move(timer);
}

void Refill::join_soon() {
  if (join_due_) return;
  auto timer = loop_.after(join_after_, [this] {
    join_due_ = false;
    join_wanted_ = true;
    submit();
  });
  if (!timer) return;
  join_ = *std::move(timer);
  join_due_ = true;
}

}  // namespace carveout::daemon
