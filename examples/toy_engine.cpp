// A toy inference engine with its paged KV cache in borrowed memory: a model of how an engine uses
// the library. It decodes several sequences at once with a small transformer on the processor, in
// real arithmetic, and prints a digest of all that it has computed. Where the cache lies must not
// change a bit of that.
//
//     c++ -std=c++17 -O2 toy_engine.cpp -o toy_engine $(pkg-config --cflags --libs carveout)
//
// What has to do with the library is in KvCache.
#include <algorithm>
#include <array>
#include <carveout/carveout.hpp>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t kLayers = 6;
constexpr std::size_t kHeads = 4;
constexpr std::size_t kHeadSize = 16;
constexpr std::size_t kWidth = kHeads * kHeadSize;
constexpr std::size_t kHidden = 2 * kWidth;
constexpr std::size_t kVocabulary = 256;
constexpr std::size_t kLongest = 200;  // tokens of a sequence

// The cache has a plane of keys and one of values for each layer. A block is the same part of every
// plane: a block table holds indices, not addresses.
constexpr std::size_t kBlocks = 128;
constexpr std::size_t kBlockTokens = 16;
constexpr std::size_t kPlanes = 2 * kLayers;
constexpr std::uint64_t kBlockBytes = kBlockTokens * kWidth * sizeof(float);
constexpr std::uint64_t kPlaneBytes = kBlocks * kBlockBytes;
constexpr std::uint64_t kPlanBytes = kPlanes * kPlaneBytes;  // 6 MiB
constexpr std::uint64_t kAlignment = 4096;                   // what every carveout begins at, too

class KvCache {
 public:
  // Borrowed as the environment says, or all of it in memory of its own: never a part of each.
  // Should the lender go away later, nothing has to be done: what is mapped stays.
  KvCache() {
    if (!borrow()) use_own_memory();
  }

  float* keys(std::size_t layer, std::uint32_t block) const { return at(2 * layer, block); }
  float* values(std::size_t layer, std::uint32_t block) const { return at(2 * layer + 1, block); }
  carveout::Blocks& blocks() { return *blocks_; }
  std::uint64_t bytes() const { return planes_->statistics().in_use; }
  // Where it is: a source's name, or "own" and why.
  const std::string& place() const { return place_; }

 private:
  bool borrow() {
    carveout::Options options;
    options.map = CARVEOUT_MAP_HOST;  // nothing here is for a GPU, so CUDA is not even started
    options.bytes = kPlanBytes;       // no more than it needs, unless CARVEOUT_MIB is set
    try {
      carveout_ = carveout::Carveout::open_from_environment(options);
      if (!carveout_) {
        place_ = "own (off)";  // nobody has asked for it, so there is nothing to tell
        return false;
      }
      if (carveout_->host_pointer() != nullptr) {
        lay_out(carveout_->host_pointer(), carveout_->bytes());
        place_ = carveout_->info().source_name;
        return true;
      }
      // CARVEOUT_MAP counts instead of what is said above, and can be a way for the GPU only.
      fall_back("no host pointer", "the processor cannot use what is mapped for a GPU only");
    } catch (const carveout::Failure& failure) {
      fall_back(carveout_ ? "too small" : carveout_status_name(failure.status()), failure.what());
    }
    return false;
  }

  void fall_back(const char* reason, const char* message) {
    std::fprintf(stderr, "toy_engine: its KV cache is in its own memory: %s\n", message);
    place_ = std::string("own (") + reason + ")";
    carveout_.reset();  // what is not used is lent to somebody else
  }

  void use_own_memory() {
    own_.reset(static_cast<std::byte*>(::operator new (kPlanBytes, std::align_val_t{kAlignment})));
    lay_out(own_.get(), kPlanBytes);
  }

  // The arenas do not care whose memory it is. Throws where not all of it fits; nothing is laid out
  // then.
  void lay_out(void* memory, std::uint64_t bytes) {
    const auto base = reinterpret_cast<std::uintptr_t>(memory);
    carveout::Planes planes(base, bytes);
    std::vector<carveout_plane_t> plan(kPlanes, carveout_plane_t{kPlaneBytes, kAlignment, 0});
    planes.place(plan);
    // Counted on the first plane; an index is good for each of them.
    carveout::Blocks blocks(plan[0].address, kPlaneBytes, kBlockBytes, kAlignment);
    for (std::size_t i = 0; i < kPlanes; ++i) {
      plane_[i] = static_cast<std::byte*>(memory) + (plan[i].address - base);
    }
    planes_ = std::move(planes);
    blocks_ = std::move(blocks);
  }

  float* at(std::size_t plane, std::uint32_t block) const {
    return reinterpret_cast<float*>(plane_[plane] + block * kBlockBytes);
  }

  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{kAlignment});
    }
  };

  // In this order: the arenas are destroyed before the memory that they count is given back.
  std::optional<carveout::Carveout> carveout_;
  std::unique_ptr<std::byte, Free> own_;
  std::optional<carveout::Planes> planes_;
  std::optional<carveout::Blocks> blocks_;
  std::array<std::byte*, kPlanes> plane_{};
  std::string place_;
};

// The same numbers on every machine: integers (splitmix64) until the last step, which is exact.
struct Random {
  std::uint64_t state;

  std::uint64_t next() {
    state += 0x9e3779b97f4a7c15U;
    std::uint64_t bits = state;
    bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
    return bits ^ (bits >> 31U);
  }
  std::size_t between(std::size_t low, std::size_t high) { return low + next() % (high - low + 1); }
  float weight() {  // between -1/4 and 1/4
    return static_cast<float>(static_cast<std::int32_t>(next() >> 40U) - (1 << 23)) * 0x1p-25F;
  }
};

template <std::size_t Size>
using Vector = std::array<float, Size>;

template <std::size_t In, std::size_t Out>
class Matrix {
 public:
  explicit Matrix(Random& random) : rows_(In) {
    for (auto& row : rows_) {
      for (float& weight : row)
        weight = random.weight();
    }
  }
  const Vector<Out>& row(std::size_t index) const { return rows_[index]; }
  Vector<Out> operator()(const Vector<In>& in) const {
    Vector<Out> out{};
    for (std::size_t i = 0; i < In; ++i) {
      for (std::size_t j = 0; j < Out; ++j)
        out[j] += in[i] * rows_[i][j];
    }
    return out;
  }

 private:
  std::vector<Vector<Out>> rows_;
};

struct Layer {
  explicit Layer(Random& random)
      : query(random), key(random), value(random), output(random), up(random), down(random) {}
  Matrix<kWidth, kWidth> query, key, value, output;
  Matrix<kWidth, kHidden> up;
  Matrix<kHidden, kWidth> down;
};

struct Model {
  explicit Model(Random& random) : embedding(random), position(random), logits(random) {
    for (std::size_t i = 0; i < kLayers; ++i)
      layers.emplace_back(random);
  }
  Matrix<kVocabulary, kWidth> embedding;
  Matrix<kLongest, kWidth> position;
  Matrix<kWidth, kVocabulary> logits;
  std::vector<Layer> layers;
};

struct Sequence {
  std::vector<std::size_t> tokens;    // the prompt, then what was decoded
  std::size_t length = 0;             // with which it is finished
  std::size_t cached = 0;             // so many of its tokens have keys and values
  std::vector<std::uint32_t> blocks;  // the block table
};

Vector<kWidth> normalised(Vector<kWidth> x) {
  float squares = 0;
  for (const float value : x)
    squares += value * value;
  const float scale = 1 / std::sqrt(squares / kWidth + 1e-5F);
  for (float& value : x)
    value *= scale;
  return x;
}

void add(Vector<kWidth>& to, const Vector<kWidth>& what) {
  for (std::size_t i = 0; i < kWidth; ++i)
    to[i] += what[i];
}

// Softmax attention of the newest token over all cached ones, by the block table.
Vector<kWidth> attend(const KvCache& cache, const Sequence& sequence, std::size_t layer,
                      const Vector<kWidth>& query) {
  const std::size_t count = sequence.cached + 1;
  Vector<kWidth> out{};
  for (std::size_t head = 0; head < kWidth; head += kHeadSize) {
    Vector<kLongest> scores{};
    float highest = -INFINITY;
    for (std::size_t i = 0; i < count; ++i) {
      const float* key =
          cache.keys(layer, sequence.blocks[i / kBlockTokens]) + i % kBlockTokens * kWidth + head;
      for (std::size_t j = 0; j < kHeadSize; ++j)
        scores[i] += query[head + j] * key[j];
      scores[i] /= 4;  // the root of kHeadSize
      highest = std::max(highest, scores[i]);
    }
    float sum = 0;
    for (std::size_t i = 0; i < count; ++i)
      sum += scores[i] = std::exp(scores[i] - highest);
    for (std::size_t i = 0; i < count; ++i) {
      const float* value =
          cache.values(layer, sequence.blocks[i / kBlockTokens]) + i % kBlockTokens * kWidth + head;
      for (std::size_t j = 0; j < kHeadSize; ++j)
        out[head + j] += scores[i] / sum * value[j];
    }
  }
  return out;
}

// One token through all layers: its keys and values go to the cache.
Vector<kVocabulary> forward(const Model& model, const KvCache& cache, const Sequence& sequence) {
  const std::size_t at = sequence.cached;
  const std::uint32_t block = sequence.blocks[at / kBlockTokens];
  Vector<kWidth> x = model.embedding.row(sequence.tokens[at]);
  add(x, model.position.row(at));
  for (std::size_t i = 0; i < kLayers; ++i) {
    const Layer& layer = model.layers[i];
    const Vector<kWidth> in = normalised(x);
    const Vector<kWidth> key = layer.key(in);
    const Vector<kWidth> value = layer.value(in);
    std::copy(key.begin(), key.end(), cache.keys(i, block) + at % kBlockTokens * kWidth);
    std::copy(value.begin(), value.end(), cache.values(i, block) + at % kBlockTokens * kWidth);
    add(x, layer.output(attend(cache, sequence, i, layer.query(in))));
    Vector<kHidden> hidden = layer.up(normalised(x));
    for (float& unit : hidden)
      unit = std::max(unit, 0.0F);
    add(x, layer.down(hidden));
  }
  return model.logits(normalised(x));
}

// Who decodes next. Where no block is left, the youngest sequence gives up its own and begins again
// later, so that the oldest always gets on.
class Scheduler {
 public:
  Scheduler(const Model& model, KvCache& cache, std::deque<Sequence> waiting)
      : model_(model), cache_(cache), waiting_(std::move(waiting)) {}

  struct Outcome {
    std::size_t tokens = 0;
    std::size_t preempted = 0;
    std::uint64_t digest = 0xcbf29ce484222325U;
  };

  Outcome run() {
    while (!waiting_.empty() || !running_.empty()) {
      admit();
      for (std::size_t i = 0; i < running_.size(); ++i) {
        if (has_room(i)) step(running_[i]);
      }
      for (std::size_t i = running_.size(); i-- > 0;) {
        if (running_[i].tokens.size() < running_[i].length) continue;
        give_back(running_[i]);
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return outcome_;
  }

 private:
  static constexpr std::size_t kBatch = 24;

  // The next one comes in when its tokens find room and each of the others can grow by a block.
  void admit() {
    while (!waiting_.empty() && running_.size() < kBatch) {
      const carveout_blocks_statistics_t counted = cache_.blocks().statistics();
      const std::size_t needed = waiting_.front().tokens.size() / kBlockTokens + 1;
      if (counted.blocks - counted.in_use < needed + running_.size()) return;
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  // A block for the next token of the sequence, unless that is the one that had to give way.
  bool has_room(std::size_t index) {
    while (running_[index].cached == running_[index].blocks.size() * kBlockTokens) {
      if (const auto block = cache_.blocks().take()) {
        running_[index].blocks.push_back(block->index);
        return true;
      }
      give_back(running_.back());
      waiting_.push_front(std::move(running_.back()));
      running_.pop_back();
      ++outcome_.preempted;
      if (index == running_.size()) return false;
    }
    return true;
  }

  void step(Sequence& sequence) {
    const Vector<kVocabulary> logits = forward(model_, cache_, sequence);
    ++outcome_.tokens;
    for (const float logit : logits)
      digest(logit);
    if (++sequence.cached < sequence.tokens.size()) return;  // of the prompt, or begun again
    const auto best = std::max_element(logits.begin(), logits.end());
    sequence.tokens.push_back(static_cast<std::size_t>(best - logits.begin()));
  }

  void give_back(Sequence& sequence) {
    for (const std::uint32_t block : sequence.blocks) {
      if (!cache_.blocks().give_back(block)) throw std::logic_error("a block is nobody's");
    }
    sequence.blocks.clear();
    sequence.cached = 0;
  }

  void digest(float value) {  // FNV-1a over its bits, the lowest byte first
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    for (unsigned shift = 0; shift < 32; shift += 8) {
      outcome_.digest = (outcome_.digest ^ ((bits >> shift) & 0xffU)) * 0x100000001b3U;
    }
  }

  const Model& model_;
  KvCache& cache_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;  // the oldest first
  Outcome outcome_;
};

std::deque<Sequence> requests(Random& random) {
  std::deque<Sequence> made(32);
  for (Sequence& sequence : made) {
    sequence.tokens.resize(random.between(4, 24));
    for (std::size_t& token : sequence.tokens)
      token = random.between(0, kVocabulary - 1);
    sequence.length = random.between(40, kLongest);
  }
  return made;
}

void infer(std::uint64_t seed) {
  KvCache cache;
  Random random{seed};
  const Model model(random);
  const Scheduler::Outcome outcome = Scheduler(model, cache, requests(random)).run();
  const carveout_blocks_statistics_t counted = cache.blocks().statistics();
  if (counted.in_use != 0) throw std::logic_error("a block was not given back");
  std::printf("kv %s: %llu MiB, %u blocks, peak %u; %zu tokens, %zu preempted; digest %016llx\n",
              cache.place().c_str(), static_cast<unsigned long long>(cache.bytes() >> 20U),
              counted.blocks, counted.peak, outcome.tokens, outcome.preempted,
              static_cast<unsigned long long>(outcome.digest));
  if (std::fflush(stdout) != 0) throw std::runtime_error("the result cannot be written");
}

}  // namespace

int main(int count, char** arguments) {
  std::uint64_t seed = 1;
  if (count != 1) {
    const std::string_view text(count == 3 ? arguments[2] : "");
    const auto read = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (std::string_view(arguments[1]) != "--seed" || read.ec != std::errc() ||
        read.ptr != text.data() + text.size()) {
      std::fprintf(stderr, "usage: toy_engine [--seed N]\n");
      return 2;
    }
  }
  try {
    infer(seed);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "toy_engine: %s\n", error.what());
    return 1;
  }
  return 0;
}
