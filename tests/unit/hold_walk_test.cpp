// What holds of a hold whatever comes: a walk at random of grants, releases, borrowers that keep
// their memory, and strangers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hold.hpp"
#include "unit/contiguous_source.hpp"

namespace carveout::daemon {
namespace {

struct Rules {
  std::uint64_t pool = 0;
  std::uint64_t wanted = 0;
  bool strangers = false;    // come and go
  bool interfering = false;  // ... and do so while something is dropped
};

class HoldWalk {
 public:
  HoldWalk(std::uint64_t seed, const Rules& rules)
      : random_(seed),
        rules_(rules),
        pool_(rules.pool),
        hold_(pool_.source(), Slices(rules.wanted).bytes()) {
    hold_.fill();
    if (!rules.interfering) return;
    pool_.on_allocate = [this] {
      if (below(8) == 0) stranger_takes();
    };
  }

  void step() {
    switch (below(11)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return ask();
      case 4:
      case 5:
      case 6:
        return release();
      case 7:
        return let_go();
      case 8:
        if (rules_.strangers) stranger_takes();
        return;
      case 9:
        return join();
      default:
        return stranger_leaves();
    }
  }

  // Empty: all is well.
  [[nodiscard]] std::string trouble() {
    const std::uint64_t held = slices(hold_.held());
    const std::uint64_t missing = slices(hold_.missing());
    if (sum(lent_) + held + missing != rules_.wanted) return "the sum is not what is wanted";
    if (pool_.lent() != sum(lent_) + sum(kept_) + held) return "memory that nobody has";
    if (missing != 0 && pool_.free() != 0) return "free memory that is missing";
    if (slices(hold_.largest()) > held) return "a largest that is not held";
    if ((held == 0) != (hold_.largest() == Bytes(0))) return "no largest of what is held";
    return trouble_;
  }

  void give_all_back() {
    pool_.on_allocate = nullptr;
    while (!strangers_.empty())
      stranger_leaves();
    while (!kept_.empty())
      let_go();
    keepers_ = false;
    while (!lent_.empty())
      release();
    join();
  }
  [[nodiscard]] bool is_whole() const {
    return hold_.missing() == Bytes(0) && hold_.largest() == Slices(rules_.wanted).bytes();
  }
  [[nodiscard]] std::uint64_t granted() const { return granted_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  struct Memory {
    std::uint64_t count = 0;
    UniqueFd descriptor;
  };

  std::uint64_t below(std::uint64_t count) { return random_() % count; }
  static std::uint64_t slices(Bytes size) { return Slices::holding(size).count(); }
  static std::uint64_t sum(const std::vector<Memory>& all) {
    std::uint64_t count = 0;
    for (const Memory& memory : all)
      count += memory.count;
    return count;
  }
  Memory take_one(std::vector<Memory>& from) {
    std::swap(from[below(from.size())], from.back());
    Memory one = std::move(from.back());
    from.pop_back();
    return one;
  }

  void ask() {
    const std::uint64_t promised = slices(hold_.largest());
    const std::uint64_t most = rules_.wanted - sum(lent_);
    if (most == 0) return;
    const std::uint64_t count =
        promised != 0 && below(4) == 0 ? promised : 1 + below(below(4) == 0 ? most : most / 4 + 1);
    const std::uint64_t before = slices(hold_.held());
    auto buffer = hold_.allocate(Slices(count).bytes());
    if (buffer) {
      ++granted_;
      if (buffer->size != Slices(count).bytes()) trouble_ = "not the size that was asked for";
      lent_.push_back({.count = count, .descriptor = *hold_.share(*buffer)});
      return;
    }
    ++refused_;
    if (rules_.interfering) return;
    if (count <= promised) trouble_ = "refused what was certain";
    if (slices(hold_.largest()) < promised) trouble_ = "a refused grant has broken a piece";
    if (slices(hold_.held()) < before) trouble_ = "a refused grant has lost something";
  }
  void release() {
    if (lent_.empty()) return;
    Memory memory = take_one(lent_);
    const std::uint64_t count = memory.count;
    if (keepers_ && below(4) == 0) {
      kept_.push_back(std::move(memory));
    } else {
      memory.descriptor.reset();
    }
    hold_.give_back(Slices(count).bytes());
    hold_.fill();
  }
  void join() {
    const Bytes largest = hold_.largest();
    const Bytes held = hold_.held();
    hold_.join();
    if (!hold_.figures().joined) trouble_ = "joined, and not";
    if (rules_.interfering) return;
    if (hold_.largest() < largest) trouble_ = "a piece has been broken";
    if (hold_.held() != held) trouble_ = "joined, and not as much as before";
  }
  void let_go() {
    if (kept_.empty()) return;
    take_one(kept_).descriptor.reset();
    hold_.retry();
  }
  void stranger_takes() {
    const std::uint64_t slice = below(rules_.pool);
    if (!pool_.is_free(slice)) return;
    pool_.take(slice, 1);
    strangers_.push_back(slice);
  }
  void stranger_leaves() {
    if (strangers_.empty()) return;
    std::swap(strangers_[below(strangers_.size())], strangers_.back());
    pool_.leave(strangers_.back(), 1);
    strangers_.pop_back();
    hold_.retry();
  }

  std::mt19937_64 random_;
  Rules rules_;
  test::ContiguousPool pool_;
  Hold hold_;
  std::vector<Memory> lent_, kept_;
  std::vector<std::uint64_t> strangers_;
  bool keepers_ = true;
  std::uint64_t granted_ = 0;
  std::uint64_t refused_ = 0;
  std::string trouble_;
};

// Each ends with all given back, and goes on.
void walk(const Rules& rules, std::uint64_t seeds) {
  std::uint64_t granted = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    HoldWalk walk(seed, rules);
    for (int i = 0; i < 1'000; ++i) {
      walk.step();
      ASSERT_EQ(walk.trouble(), "") << "seed " << seed << ", step " << i;
    }
    walk.give_all_back();
    ASSERT_EQ(walk.trouble(), "") << "seed " << seed << ", at the end";
    ASSERT_TRUE(walk.is_whole() || rules.pool != rules.wanted) << "seed " << seed;
    granted += walk.granted();
    refused += walk.refused();
  }
  EXPECT_GT(granted, seeds * 50);
  EXPECT_GT(refused, 0U);
}

TEST(HoldWalk, WithBorrowersThatKeepTheirMemory) {
  walk({.pool = 32, .wanted = 32}, 10);
}

TEST(HoldWalk, WithStrangersWhereSomethingIsFree) {
  walk({.pool = 32, .wanted = 32, .strangers = true}, 10);
}

TEST(HoldWalk, WithStrangersWhileSomethingIsDropped) {
  walk({.pool = 32, .wanted = 32, .strangers = true, .interfering = true}, 10);
}

TEST(HoldWalk, InAPoolThatHasMore) {
  walk({.pool = 40, .wanted = 32, .strangers = true}, 10);
}

TEST(HoldWalk, InAPoolThatHasLess) {
  walk({.pool = 27, .wanted = 32}, 10);
}

}  // namespace
}  // namespace carveout::daemon
