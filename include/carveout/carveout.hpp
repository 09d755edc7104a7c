// carveout for C++17: owners over carveout.h, whose comments hold here, too. Header-only: what is
// linked is the C ABI alone.
//
//     carveout::Options options;
//     options.device = 0;  // for that GPU or not at all; see carveout_options_t
//     if (auto memory = carveout::Carveout::open_from_environment(options)) {
//       use(memory->device_pointer(), memory->bytes());
//     }
//
// Nothing is returned where it is off; carveout::Failure is thrown where it was asked for and there
// is none.
//
// Needs exceptions; a program without them has carveout.h.
#ifndef CARVEOUT_CARVEOUT_HPP
#define CARVEOUT_CARVEOUT_HPP

#include <carveout/carveout.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace carveout {
// So that nothing here is taken for another version's, or for what the library itself is made of.
inline namespace v0 {

// Why something failed. what() is carveout_error_t's message.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const carveout_error_t& error)
      : std::runtime_error(error.message),
        status_(static_cast<carveout_status_t>(error.status)),
        system_errno_(error.system_errno),
        cuda_result_(error.cuda_result) {
    std::memcpy(setting_, error.setting, sizeof setting_);
  }

  [[nodiscard]] carveout_status_t status() const noexcept { return status_; }
  [[nodiscard]] int system_errno() const noexcept { return system_errno_; }
  [[nodiscard]] int cuda_result() const noexcept { return cuda_result_; }
  // The row that is to blame ("CARVEOUT_KEY_FILE"), or "".
  [[nodiscard]] const char* setting() const noexcept { return setting_; }

 private:
  carveout_status_t status_;
  int system_errno_;
  int cuda_result_;
  char setting_[sizeof carveout_error_t::setting] = {};  // copying an exception must not throw
};

// Receives a carveout_log_level_t and one line. What it throws is dropped.
using Log = std::function<void(int level, const char* line)>;

// As carveout_options_t; an empty optional is that one's NULL.
struct Options {
  carveout_source_t source = CARVEOUT_SOURCE_DAEMON;
  carveout_map_t map = CARVEOUT_MAP_AUTO;
  int device = -1;
  std::uint64_t bytes = std::uint64_t{1792} << 20U;
  std::uint32_t timeout_ms = 10000;
  std::optional<std::string> socket_path = {};
  std::optional<std::string> key = {};
  std::optional<std::string> key_file = {};
  std::optional<std::string> drm_card = {};
  std::optional<std::string> heap = {};
  Log log = {};
};

// What Carveout and Pages have in common: an owner of what was opened. Destroying it closes it,
// which gives the memory back. One that was moved from is only good for being destroyed, assigned
// to, or asked whether it is open.
template <typename Calls>
class Opened {
 public:
  using Handle = typename Calls::Handle;
  using Info = typename Calls::Info;

  Opened(Opened&& other) noexcept
      : log_(std::move(other.log_)),
        handle_(std::exchange(other.handle_, nullptr)),
        info_(std::exchange(other.info_, {})) {}
  Opened& operator=(Opened&& other) noexcept {
    if (this != &other) {
      Calls::close(handle_, nullptr);
      log_ = std::move(other.log_);
      handle_ = std::exchange(other.handle_, nullptr);
      info_ = std::exchange(other.info_, {});
    }
    return *this;
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { Calls::close(handle_, nullptr); }

  // What the destructor does, saying what went wrong. Not open afterwards, even if it throws.
  void close() {
    info_ = {};
    carveout_error_t error;
    error.struct_size = sizeof error;
    if (Calls::close(std::exchange(handle_, nullptr), &error) != CARVEOUT_OK) throw Failure(error);
  }
  [[nodiscard]] bool is_open() const noexcept { return handle_ != nullptr; }

  // All of it; what it points to lives as long as this.
  [[nodiscard]] const Info& info() const noexcept { return info_; }

  [[nodiscard]] int watch_fd() const noexcept { return Calls::watch_fd(handle_); }
  [[nodiscard]] bool is_lender_gone() const noexcept { return Calls::is_lender_gone(handle_) != 0; }
  void after_fork_in_child() noexcept { Calls::after_fork_in_child(handle_); }

  // For calls of the C ABI; stays this object's.
  [[nodiscard]] Handle* handle() const noexcept { return handle_; }

 protected:
  // Not open where it is off. Throws Failure, and std::bad_alloc for what this header allocates.
  Opened(const Options& options, bool from_environment) : handle_(nullptr), info_{} {
    carveout_options_t plain;
    carveout_options_init(&plain, sizeof plain);
    plain.from_environment = from_environment ? 1 : 0;
    plain.source = options.source;
    plain.map = options.map;
    plain.device = options.device;
    plain.bytes = options.bytes;
    plain.timeout_ms = options.timeout_ms;
    plain.socket_path = text_or_null(options.socket_path);
    plain.key = text_or_null(options.key);
    plain.key_file = text_or_null(options.key_file);
    plain.drm_card = text_or_null(options.drm_card);
    plain.heap = text_or_null(options.heap);
    if (options.log) {
      log_ = std::make_unique<Log>(options.log);
      plain.log = &call_log;
      plain.log_context = log_.get();
    }
    carveout_error_t error;
    error.struct_size = sizeof error;
    const carveout_status_t status = Calls::open(&plain, &handle_, &error);
    if (status != CARVEOUT_OK && status != CARVEOUT_OFF) throw Failure(error);
    info_.struct_size = sizeof info_;
    if (status == CARVEOUT_OK) Calls::get_info(handle_, &info_);
  }

 private:
  static const char* text_or_null(const std::optional<std::string>& text) noexcept {
    return text ? text->c_str() : nullptr;
  }
  static void call_log(void* context, std::int32_t level, const char* line) noexcept {
    try {
      (*static_cast<Log*>(context))(level, line);
    } catch (...) {  // must not reach C
    }
  }

  std::unique_ptr<Log> log_;  // where it is must not change; outlives the handle
  Handle* handle_;
  Info info_;
};

struct CarveoutCalls {  // named as what they call. NOLINTBEGIN(readability-identifier-naming)
  using Handle = carveout_t;
  using Info = carveout_info_t;
  static constexpr auto open = &carveout_open;
  static constexpr auto close = &carveout_close;
  static constexpr auto get_info = &carveout_get_info;
  static constexpr auto watch_fd = &carveout_watch_fd;
  static constexpr auto is_lender_gone = &carveout_is_lender_gone;
  static constexpr auto after_fork_in_child = &carveout_after_fork_in_child;
};  // NOLINTEND(readability-identifier-naming)

// Memory in place. Destroying it is carveout_close(): unmapped first, given back then.
class Carveout : public Opened<CarveoutCalls> {
 public:
  // Throws Failure, and std::bad_alloc for what this header allocates itself.
  [[nodiscard]] static Carveout open(const Options& options) { return Carveout(options, false); }

  // Nothing where CARVEOUT is unset or 0. A row that is set counts instead of what is in `options`.
  // Throws as open() does.
  [[nodiscard]] static std::optional<Carveout> open_from_environment(const Options& options = {}) {
    Carveout opened(options, true);
    if (!opened.is_open()) return std::nullopt;
    return opened;
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return info().bytes; }
  [[nodiscard]] std::uint64_t device_pointer() const noexcept { return info().device_pointer; }
  [[nodiscard]] void* host_pointer() const noexcept { return info().host_pointer; }

 private:
  using Opened::Opened;
};

struct PagesCalls {  // named as what they call. NOLINTBEGIN(readability-identifier-naming)
  using Handle = carveout_pages_t;
  using Info = carveout_pages_info_t;
  static constexpr auto open = &carveout_pages_open;
  static constexpr auto close = &carveout_pages_close;
  static constexpr auto get_info = &carveout_pages_get_info;
  static constexpr auto watch_fd = &carveout_pages_watch_fd;
  static constexpr auto is_lender_gone = &carveout_pages_is_lender_gone;
  static constexpr auto after_fork_in_child = &carveout_pages_after_fork_in_child;
};  // NOLINTEND(readability-identifier-naming)

// Slices as handles of CUDA's, for engines that map them themselves. Destroying it is
// carveout_pages_close(): cuMemUnmap() all before.
class Pages : public Opened<PagesCalls> {
 public:
  // As Carveout's.
  [[nodiscard]] static Pages open(const Options& options) { return Pages(options, false); }
  [[nodiscard]] static std::optional<Pages> open_from_environment(const Options& options = {}) {
    Pages opened(options, true);
    if (!opened.is_open()) return std::nullopt;
    return opened;
  }

  [[nodiscard]] std::size_t size() const noexcept { return info().count; }
  [[nodiscard]] std::uint64_t page_bytes() const noexcept { return info().page_bytes; }
  // A CUmemGenericAllocationHandle. `page` is less than size().
  [[nodiscard]] std::uint64_t operator[](std::size_t page) const noexcept {
    return info().handles[page];
  }
  [[nodiscard]] const std::uint64_t* begin() const noexcept { return info().handles; }
  [[nodiscard]] const std::uint64_t* end() const noexcept { return info().handles + size(); }

 private:
  using Opened::Opened;
};

// The two functions that rmm::mr::callback_memory_resource takes; both arguments are a pointer to
// the device's number, an int that outlives the resource, or null for device 0:
//
//     rmm::mr::callback_memory_resource resource(carveout::rmm_allocate<rmm::cuda_stream_view>,
//                                                carveout::rmm_deallocate<rmm::cuda_stream_view>);
//
// carveout_torch_alloc() and carveout_torch_free() otherwise; std::bad_alloc is thrown where there
// is no memory. Not run with RMM yet.
template <typename Stream>
void* rmm_allocate(std::size_t bytes, Stream /*stream*/, void* device) {
  if (bytes == 0) return nullptr;
  const int number = device == nullptr ? 0 : *static_cast<const int*>(device);
  void* const pointer = carveout_torch_alloc(bytes, number, nullptr);
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}
template <typename Stream>
void rmm_deallocate(void* pointer, std::size_t bytes, Stream /*stream*/,
                    void* /*device*/) noexcept {
  carveout_torch_free(pointer, bytes, 0, nullptr);
}

// The owner of a carveout_planes_t. Thread rule: as that has it.
class Planes {
 public:
  Planes(std::uint64_t base, std::uint64_t bytes) {
    carveout_planes_t* made = nullptr;
    carveout_error_t error;
    error.struct_size = sizeof error;
    if (carveout_planes_create(base, bytes, &made, &error) != CARVEOUT_OK) throw Failure(error);
    handle_.reset(made);
  }

  // Writes the addresses into `plan`, whole or not at all. Throws Failure: CARVEOUT_ERROR_EXHAUSTED
  // where there is no room.
  std::uint64_t place(std::vector<carveout_plane_t>& plan) {
    carveout_error_t error;
    const auto id = place(plan, error);
    if (!id) throw Failure(error);
    return *id;
  }
  // The same, and nothing where there is no room.
  [[nodiscard]] std::optional<std::uint64_t> try_place(std::vector<carveout_plane_t>& plan) {
    carveout_error_t error;
    const auto id = place(plan, error);
    if (!id && error.status != CARVEOUT_ERROR_EXHAUSTED) throw Failure(error);
    return id;
  }
  // False for what is not placed.
  bool give_back(std::uint64_t plan_id) noexcept {
    return carveout_planes_give_back(handle_.get(), plan_id, nullptr) == CARVEOUT_OK;
  }
  [[nodiscard]] carveout_planes_statistics_t statistics() const noexcept {
    carveout_planes_statistics_t counted{};
    counted.struct_size = sizeof counted;
    carveout_planes_get_statistics(handle_.get(), &counted);
    return counted;
  }
  // For calls of the C ABI; stays this object's.
  [[nodiscard]] carveout_planes_t* handle() const noexcept { return handle_.get(); }

 private:
  // Throws nothing: a plan that is placed must not be lost.
  std::optional<std::uint64_t> place(std::vector<carveout_plane_t>& plan,
                                     carveout_error_t& error) noexcept {
    std::uint64_t id = 0;
    error.struct_size = sizeof error;
    if (carveout_planes_place(handle_.get(), plan.data(), plan.size(), &id, &error) !=
        CARVEOUT_OK) {
      return std::nullopt;
    }
    return id;
  }
  struct Destroy {
    void operator()(carveout_planes_t* planes) const noexcept { carveout_planes_destroy(planes); }
  };
  std::unique_ptr<carveout_planes_t, Destroy> handle_;
};

// The owner of a carveout_blocks_t. Thread rule: as that has it.
class Blocks {
 public:
  struct Block {
    std::uint32_t index;
    std::uint64_t address;
  };

  Blocks(std::uint64_t base, std::uint64_t bytes, std::uint64_t block_bytes,
         std::uint64_t alignment) {
    carveout_blocks_t* made = nullptr;
    carveout_error_t error;
    error.struct_size = sizeof error;
    if (carveout_blocks_create(base, bytes, block_bytes, alignment, &made, &error) != CARVEOUT_OK) {
      throw Failure(error);
    }
    handle_.reset(made);
    const carveout_blocks_statistics_t counted = statistics();
    first_ = counted.first;
    stride_bytes_ = counted.stride_bytes;
  }

  // Nothing where all are taken.
  [[nodiscard]] std::optional<Block> take() noexcept {
    Block block{};
    if (carveout_blocks_take(handle_.get(), &block.index, &block.address) != CARVEOUT_OK) {
      return std::nullopt;
    }
    return block;
  }
  // False for what is no block or not taken.
  bool give_back(std::uint32_t index) noexcept {
    return carveout_blocks_give_back(handle_.get(), index) == CARVEOUT_OK;
  }
  bool give_back_at(std::uint64_t address) noexcept {
    return carveout_blocks_give_back_at(handle_.get(), address) == CARVEOUT_OK;
  }
  // Of a block, taken or not; `index` is less than statistics().blocks.
  [[nodiscard]] std::uint64_t address_of(std::uint32_t index) const noexcept {
    return first_ + index * stride_bytes_;
  }
  [[nodiscard]] carveout_blocks_statistics_t statistics() const noexcept {
    carveout_blocks_statistics_t counted{};
    counted.struct_size = sizeof counted;
    carveout_blocks_get_statistics(handle_.get(), &counted);
    return counted;
  }
  // For calls of the C ABI; stays this object's.
  [[nodiscard]] carveout_blocks_t* handle() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(carveout_blocks_t* blocks) const noexcept { carveout_blocks_destroy(blocks); }
  };
  std::unique_ptr<carveout_blocks_t, Destroy> handle_;
  std::uint64_t first_ = 0;
  std::uint64_t stride_bytes_ = 0;
};

}  // namespace v0
}  // namespace carveout

#endif
