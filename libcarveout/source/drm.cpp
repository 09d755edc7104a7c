#include "source/drm.hpp"

#include <optional>
#include <utility>

#include "base/text.hpp"
#include "source/available_memory.hpp"
#include "source/dma_buf.hpp"

namespace carveout {
namespace {

// What is smaller moves MemAvailable by less than it moves by itself.
constexpr Bytes kTelling = mib(64);

class DrmSource final : public Source {
 public:
  DrmSource(DrmCard card, const DrmSettings& settings, std::string warning)
      : card_(std::move(card)), lend_as_(settings.lend_as), meminfo_(settings.meminfo) {
    if (!warning.empty()) warning_ = std::move(warning);
  }

  [[nodiscard]] Description describe() const override {
    return {
        .name = "drm",
        .kind = lend_as_ == LendAs::kNvidia ? DescriptorKind::kNvidiaFile : DescriptorKind::kDmaBuf,
        .kernel_zeroes = false,
        .limit = std::nullopt,
        .detail = cat("dumb buffers of ", card_.path(), " (", printable(card_.driver(), 64), ")",
                      ordinary_ ? ", which are ordinary memory, not a reservation" : "")};
  }

  Result<Buffer> allocate(Bytes size) override {
    if (size == Bytes(0) || Slices::holding(size).bytes() != size) {
      return Error{Code::kInvalid, 0, cat("allocating ", format_bytes(size)),
                   "a slice is 2 MiB, and this is not a whole number of them"};
    }
    if (!told_ && size >= kTelling) before_ = read_mem_available(meminfo_);
    const auto dumb = card_.create_dumb(size);
    if (!dumb) return dumb.error();
    auto exported = card_.export_dma_buf(dumb->handle);
    // From here on the dma-buf alone keeps the memory.
    card_.destroy_dumb(dumb->handle);
    if (!exported) return exported.error();
    dma_buf::name(exported->get(), "carveout");
    return Buffer{*std::move(exported), size};
  }

  Result<UniqueFd> share(const Buffer& buffer) override {
    if (lend_as_ == LendAs::kDmaBuf) return dma_buf::duplicate(buffer.descriptor.get());
    const auto handle = card_.import_dma_buf(buffer.descriptor.get());
    if (!handle) return handle.error();
    auto file = card_.export_nvidia(*handle);
    card_.close_handle(*handle);
    return file;
  }

  Result<void> scrub(Buffer& buffer) override {
    auto done = dma_buf::zero(buffer.descriptor.get(), buffer.size);
    // Only now has a driver allocated that waits until the memory is touched.
    if (done && !told_ && before_) compare(*before_, buffer.size);
    return done;
  }

  std::optional<std::string> take_warning() override { return std::exchange(warning_, {}); }

 private:
  // Whether the memory came out of what everybody shares: then there is no reservation behind this
  // card, and lending it gains nothing.
  void compare(const Result<Bytes>& before, Bytes size) {
    const auto after = read_mem_available(meminfo_);
    if (!before || !after) return;
    told_ = true;
    const Bytes moved = *before > *after ? *before - *after : Bytes(0);
    ordinary_ = moved.count() > size.count() / 2;
    if (!ordinary_) return;
    warning_ = cat("drm: ", format_bytes(size), " of dumb buffers took ", moved.count() >> 20U,
                   " MiB of the host's available memory: ", card_.path(), " (",
                   printable(card_.driver(), 64),
                   ") gives ordinary memory, not a display reservation. Lending it gains nothing");
  }

  DrmCard card_;
  const LendAs lend_as_;
  const std::string meminfo_;
  std::optional<Result<Bytes>> before_;  // what the host had before the first large buffer
  bool told_ = false;
  bool ordinary_ = false;
  std::optional<std::string> warning_;
};

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
  return std::unique_ptr<Source>(
      std::make_unique<DrmSource>(*std::move(card), settings, std::move(warning)));
}

}  // namespace carveout
