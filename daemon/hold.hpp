#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "source/source.hpp"

namespace carveout::daemon {

struct HoldFigures {
  Bytes missing;        // neither lent nor held
  Bytes largest;        // the largest grant that is certain: of one held buffer
  bool joined = true;   // ... and more in one was tried
  bool broken = false;  // what was one, or should be, did not come back as one: it may later
};

// Holds a whole reservation, so that nobody else takes it: what is not lent is allocated by us, in
// as few buffers as the kernel gives. A grant is a new allocation still: held buffers are dropped
// for it, and what is left over is taken back. The worker's own.
class Hold final : public Source {
 public:
  // `wanted`: how much there should be in all, lent and held; `most_pieces`: that are held at once,
  // each with a descriptor.
  Hold(std::unique_ptr<Source> source, Bytes wanted, std::size_t most_pieces = 128)
      : source_(std::move(source)), wanted_(wanted), most_pieces_(most_pieces) {}

  // From now on: how much there should be.
  void want(Bytes wanted) { wanted_ = wanted; }
  // What is lent already when the daemon starts.
  void count_lent(Bytes lent) { lent_ = lent; }
  // Memory that was lent has come back, as far as we know. What its borrower keeps all the same is
  // missing at the next fill().
  void give_back(Bytes size) { lent_ = lent_ > size ? lent_ - size : Bytes(0); }

  // Takes what is missing, as far as the kernel has it: the largest pieces first.
  void fill();
  // What is held in several pieces may lie side by side: tries it as one, then in the largest
  // pieces that there are, and none smaller than before. Costs a source that zeroes as much as all
  // of it.
  void join();
  // fill(), for when nothing is known to have come back: asks for one slice first, since kernels
  // log each large ask that fails.
  void retry();

  [[nodiscard]] HoldFigures figures() const { return {missing(), largest(), joined_, is_broken()}; }
  [[nodiscard]] Bytes held() const;
  [[nodiscard]] Bytes missing() const;
  // The largest grant that is certain: of one held buffer.
  [[nodiscard]] Bytes largest() const;
  // Why the kernel gave no more, the last time that it did not.
  [[nodiscard]] const std::optional<Error>& refusal() const { return refusal_; }

  [[nodiscard]] Description describe() const override { return source_->describe(); }
  Result<Buffer> allocate(Bytes size) override;
  Result<UniqueFd> share(const Buffer& buffer) override { return source_->share(buffer); }
  Result<void> scrub(Buffer& buffer) override { return source_->scrub(buffer); }
  std::optional<std::string> take_warning() override { return source_->take_warning(); }

 private:
  void make_room(Bytes size);
  // `known`: sizes that the kernel has had in one, before they were dropped. They are not broken.
  void take_back(Bytes rest, const std::vector<Bytes>& known);
  void take(Bytes amount, const std::vector<Bytes>& known);
  Result<Buffer> ask(Bytes size, const std::vector<Bytes>& known);
  [[nodiscard]] std::vector<Bytes> sizes() const;
  // Nothing that we know of lies in between: it should be one.
  [[nodiscard]] bool is_alone() const;
  [[nodiscard]] bool is_broken() const;

  std::unique_ptr<Source> source_;
  Bytes wanted_;
  std::size_t most_pieces_;
  Bytes lent_;
  std::vector<Buffer> held_;
  bool joined_ = true;
  bool broken_ = false;
  std::optional<Error> refusal_;
};

}  // namespace carveout::daemon
