#pragma once

// Where an opener has its memory from: the lender or the source that the settings name.

#include <memory>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/descriptor_kind.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "client/lender.hpp"
#include "client/opening.hpp"
#include "client/settings.hpp"
#include "source/source.hpp"

namespace carveout::client {

// Memory that is not mapped yet.
struct Piece {
  UniqueFd memory;
  Bytes size;
  DescriptorKind kind = DescriptorKind::kMemfd;
};

// Thread rule: one call at a time.
class Supply {
 public:
  // Connects to the lender, or opens the source. `settings` are complete(). Blocks until
  // settings.timeout at the longest. Errors: Lender::connect()'s and the sources', by their rows.
  static Result<Supply> open(const Settings& settings, const Opening& opening);

  // That the lender has as much free, so that nobody's memory is taken in vain, piece by piece.
  // (Nothing is asked of a source.) Blocks and errors: as take(); kRefused where it has less.
  Result<void> look_for(Bytes size);

  // A piece of `size`, rounded up to whole slices: all zero, and never less. Several are borrowed
  // on one connection, within settings.timeout since open(). Blocks: until then; as
  // Source::allocate() and scrub() say. Errors: Lender::claim()'s and the sources', after which
  // there is no more to be had; what was taken before is as it was.
  Result<Piece> take(Bytes size);

  // For people, of the piece taken last: "lent as dma-buf", "of memory of CUDA device 0 (...)".
  [[nodiscard]] const std::string& origin() const { return origin_; }
  // Of the lender's reservation; 0 where there is no lender.
  [[nodiscard]] Bytes lender_base() const { return lender_base_; }

  // What all pieces are held by, if they were lent: to be destroyed after they are unmapped. There
  // is nothing more to be had.
  std::optional<Lender> take_lender() { return std::exchange(lender_, std::nullopt); }

 private:
  Supply(const Settings& settings, const Opening& opening)
      : settings_(settings), opening_(opening), deadline_(wire::Clock::now() + settings.timeout) {}
  [[nodiscard]] Error why(Error problem) const;
  Result<Piece> claim(Bytes size);
  Result<Piece> allocate(Bytes size);

  Settings settings_;
  Opening opening_;
  Deadline deadline_;
  std::optional<Lender> lender_;
  std::unique_ptr<Source> source_;
  std::string origin_;
  Bytes lender_base_;
};

}  // namespace carveout::client
