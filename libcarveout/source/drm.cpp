#include "source/drm.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "source/available_memory.hpp"
#include "source/dma_buf.hpp"

namespace carveout {
namespace {

// What is smaller moves MemAvailable by less than that moves by itself.
constexpr Bytes kTelling = mib(16);

class DrmSource final : public Source {
 public:
  DrmSource(DrmCard card, const DrmSettings& settings, std::string warning)
      : card_(std::move(card)),
        lend_as_(settings.lend_as),
        ioctl_(settings.calls.ioctl),
        meminfo_(settings.meminfo) {
    warn(std::move(warning));
  }

  // Takes buffers for a moment, touches them and exports one as it would be lent, so that a card
  // that cannot is refused now; and sees whose memory it is. A card that has nothing left is no
  // error.
  Result<void> try_out();

  [[nodiscard]] Description describe() const override {
    return {
        .name = "drm",
        .kind = lend_as_ == LendAs::kNvidia ? DescriptorKind::kNvidiaFile : DescriptorKind::kDmaBuf,
        .kernel_zeroes = false,
        .limit = std::nullopt,
        .ordinary_memory = ordinary_.has_value(),
        .detail = cat("dumb buffers of ", card_.path(), " (", printable(card_.driver(), 64), ")",
                      ordinary_ ? ", which are ordinary memory, not a reservation" : "")};
  }

  Result<Buffer> allocate(Bytes size) override {
    if (size == Bytes(0) || Slices::holding(size).bytes() != size) {
      return Error{Code::kInvalid, 0, cat("allocating ", format_bytes(size)),
                   "a slice is 2 MiB, and this is not a whole number of them"};
    }
    // It may be only promised, and we be killed when it is touched: so it is touched now, if the
    // host can spare it.
    if (ordinary_) {
      if (auto spared = ordinary_->take(size); !spared) return spared.error();
    }
    const auto dumb = card_.create_dumb(size);
    if (!dumb) return dumb.error();
    auto exported = card_.export_dma_buf(dumb->handle);
    // From here on the dma-buf alone keeps the memory.
    card_.destroy_dumb(dumb->handle);
    if (!exported) return exported.error();
    dma_buf::name(exported->get(), "carveout");
    if (ordinary_) {
      auto touched = dma_buf::commit(exported->get(), size, ioctl_);
      if (!touched) return touched.error();
    }
    return Buffer{*std::move(exported), size};
  }

  Result<UniqueFd> share(const Buffer& buffer) override {
    if (lend_as_ == LendAs::kDmaBuf) return duplicate(buffer.descriptor.get(), "dma-buf");
    const auto handle = card_.import_dma_buf(buffer.descriptor.get());
    if (!handle) return handle.error();
    auto file = card_.export_nvidia(*handle);
    card_.close_handle(*handle);
    return file;
  }

  Result<void> scrub(Buffer& buffer) override {
    return dma_buf::zero(buffer.descriptor.get(), buffer.size, ioctl_);
  }

  std::optional<std::string> take_warning() override { return std::exchange(warning_, {}); }

 private:
  Result<Buffer> take_what_tells(const Result<Bytes>& available);
  void warn(std::string text);

  DrmCard card_;
  const LendAs lend_as_;
  const dma_buf::Ioctl ioctl_;
  const std::string meminfo_;
  std::optional<AvailableMemory> ordinary_;  // there is no reservation behind the card
  std::optional<std::string> warning_;
};

void DrmSource::warn(std::string text) {
  if (text.empty()) return;
  warning_ = warning_ ? cat(*warning_, ". ", text) : std::move(text);
}

Result<void> DrmSource::try_out() {
  const auto before = read_mem_available(meminfo_);
  std::vector<Buffer> taken;
  Bytes size;
  double moved = 0;
  // Three, since others move the figure as well, and since the kernel keeps what was freed a moment
  // ago in lists that do not count: by one buffer alone it may seem to move too much, or too
  // little.
  while (taken.size() < 3) {
    auto buffer = take_what_tells(before);
    if (!buffer && buffer.error().code != Code::kExhausted) return std::move(buffer).error();
    if (!buffer) break;
    if (auto touched = scrub(*buffer); !touched) return touched;
    if (taken.empty()) {
      if (auto lent = share(*buffer); !lent) return std::move(lent).error();
    }
    if (buffer->size < kTelling) break;
    size = size + buffer->size;
    taken.push_back(*std::move(buffer));
    const auto now = read_mem_available(meminfo_);
    if (!before || !now) return {};
    moved = static_cast<double>(before->count()) - static_cast<double>(now->count());
    // A reservation moves it by a hundredth of its size (reported of GB10).
    if (moved < static_cast<double>(size.count()) / 8) return {};
  }
  if (taken.empty() || moved < static_cast<double>(size.count()) / 2) return {};
  ordinary_.emplace(meminfo_);
  warn(cat("drm: ", format_bytes(size), " of dumb buffers moved the host's available memory by ",
           static_cast<std::uint64_t>(moved) >> 20U, " MiB: ", card_.path(), " (",
           printable(card_.driver(), 64),
           ") gives ordinary memory, not a display reservation. Lending it gains nothing"));
  return {};
}

// As much as tells whose memory it is and as the host can spare, if it is the host's; else a slice.
Result<Buffer> DrmSource::take_what_tells(const Result<Bytes>& available) {
  for (const Bytes size : {mib(64), mib(32), kTelling}) {
    if (!available || available->count() / 4 < size.count()) continue;
    auto buffer = allocate(size);
    if (buffer || buffer.error().code != Code::kExhausted) return buffer;
  }
  return allocate(kSliceBytes);
}

}  // namespace

Result<std::unique_ptr<Source>> open_drm_source(const DrmSettings& settings) {
  std::vector<std::string> passed_over;
  std::optional<DrmCard> card;
  if (settings.card == "auto") {
    auto choice = choose_card(settings.calls);
    if (!choice) return choice.error();
    card.emplace(std::move(choice->card));
    passed_over = std::move(choice->passed_over);
  } else {
    auto opened = DrmCard::open(settings.calls, settings.card);
    if (!opened) return opened.error();
    card.emplace(*std::move(opened));
  }
  const auto lit = card->is_lit();
  if (!lit) return lit.error();
  if (*lit && !settings.allow_display) {
    return Error{
        Code::kInvalid, 0,
        cat("card ", printable(card->path(), 200), " (", printable(card->driver(), 64), ")"),
        "shows a picture, whose memory is the reservation's: end the desktop session and the "
        "console (fbdev=0), or take the risk with --allow-display"};
  }
  std::string warning;
  for (const std::string& reason : passed_over)
    warning += cat(warning.empty() ? "drm: passed over: " : "; ", reason);
  auto source = std::make_unique<DrmSource>(*std::move(card), settings, std::move(warning));
  if (auto tried = source->try_out(); !tried) return tried.error();
  return std::unique_ptr<Source>(std::move(source));
}

}  // namespace carveout
