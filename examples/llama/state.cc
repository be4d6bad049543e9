#include "state.hpp"

#include <cstring>
#include <map>
#include <random>

#include "session.hpp"

namespace seriatim_llama {
namespace {

// A state is one after the other: caches of keys, of keys and values, of those with M-RoPE (a cell holds x, y and the
// token, too), and recurrent states.
enum class Part { kKeys, kKeysAndValues, kCoordinates, kRecurrent };

const std::map<std::string, std::vector<Part>>& layouts() {
  static const std::map<std::string, std::vector<Part>> known = {
      {"qwen4exp", {Part::kCoordinates, Part::kRecurrent, Part::kKeys}},
      {"deepseek32", {Part::kKeys, Part::kKeys}},
      {"glm-dsa", {Part::kKeys, Part::kKeys}},
      {"hy_v4", {Part::kKeys, Part::kKeys}},
      {"minimax-m3", {Part::kKeysAndValues, Part::kKeysAndValues}},
  };
  return known;
}

class Grower {
 public:
  Grower(const std::vector<std::uint8_t>& state, std::int32_t tokens, std::uint32_t seed)
      : state_(state), tokens_(tokens), random_(seed) {}

  void head() {
    copy<std::uint32_t>();  // a magic number
    copy<std::int32_t>();   // the sequence
  }

  void cache(bool with_values, bool coordinates) {
    expect(1, copy<std::uint32_t>(), "streams");
    cells_ = take<std::uint32_t>();
    put(static_cast<std::uint32_t>(tokens_));
    skip(cells_ * (coordinates ? 24U : 12U));
    for (std::int32_t position = 0; position < tokens_; ++position) {
      put(position);
      put(std::uint32_t{1});  // sequences of the cell
      if (coordinates) {
        put(position);
        put(position);
        put(std::int32_t{0});  // its token
      }
      put(std::int32_t{0});  // its sequence
    }
    expect(0, copy<std::uint32_t>(), "a transposed value cache");
    layers_ = copy<std::uint32_t>();
    for (std::uint32_t i = 0; i < layers_ * (with_values ? 2U : 1U); ++i) rows();
  }

  void recurrent() {
    expect(1, copy<std::uint32_t>(), "recurrent cells");
    take<std::int32_t>();
    put(tokens_ - 1);
    expect(0, copy<std::uint32_t>(), "sequences of the recurrent cell");
    expect(0, copy<std::uint32_t>(), "a transposed recurrent state");
    const std::uint32_t all = copy<std::uint32_t>();
    for (std::uint32_t i = 0; i < 2 * (all - layers_); ++i) {
      copy<std::int32_t>();
      const std::uint64_t size = copy<std::uint64_t>();
      need(size);
      grown_.insert(grown_.end(), at(), at() + size);
      read_ += size;
    }
  }

  std::vector<std::uint8_t> finish() {
    if (read_ != state_.size()) die("the state has bytes behind what is known of it");
    return std::move(grown_);
  }

 private:
  const std::uint8_t* at() const { return state_.data() + read_; }

  void need(std::uint64_t size) const {
    if (size > state_.size() - read_) die("the state ends early: it has another layout");
  }

  void skip(std::uint64_t size) {
    need(size);
    read_ += size;
  }

  template <typename T>
  T take() {
    T value;
    need(sizeof value);
    std::memcpy(&value, at(), sizeof value);
    read_ += sizeof value;
    return value;
  }

  template <typename T>
  void put(T value) {
    const std::size_t end = grown_.size();
    grown_.resize(end + sizeof value);
    std::memcpy(grown_.data() + end, &value, sizeof value);
  }

  template <typename T>
  T copy() {
    const T value = take<T>();
    put(value);
    return value;
  }

  static void expect(std::uint32_t due, std::uint32_t found, const char* what) {
    if (due != found) die(std::string("the state has another layout than the one known: ") + what);
  }

  // The rows of one layer's keys or values.
  void rows() {
    const auto type = static_cast<ggml_type>(copy<std::int32_t>());
    const std::uint64_t size = copy<std::uint64_t>();
    if (type < 0 || type >= GGML_TYPE_COUNT || size == 0) die("the state has rows of no known type");
    skip(cells_ * size);
    const std::vector<std::uint8_t>& pool = numbers(type);
    const std::size_t block = ggml_type_size(type);
    if (size % block != 0 || size >= pool.size()) die("the state has rows of an unknown size");
    std::uniform_int_distribution<std::size_t> start(0, (pool.size() - size) / block);
    const std::size_t end = grown_.size();
    grown_.resize(end + static_cast<std::size_t>(tokens_) * size);
    for (std::int32_t i = 0; i < tokens_; ++i) {
      std::memcpy(grown_.data() + end + static_cast<std::size_t>(i) * size, pool.data() + start(random_) * block, size);
    }
  }

  // A million random numbers of a type; a row starts anywhere among them.
  const std::vector<std::uint8_t>& numbers(ggml_type type) {
    std::vector<std::uint8_t>& pool = pools_[type];
    if (pool.empty()) {
      constexpr std::int64_t kCount = std::int64_t{1} << 20;
      std::normal_distribution<float> normal;
      std::vector<float> values(kCount);
      for (float& value : values) value = normal(random_);
      pool.resize(ggml_row_size(type, kCount));
      if (type == GGML_TYPE_F32) {
        std::memcpy(pool.data(), values.data(), pool.size());
      } else {
        ggml_quantize_chunk(type, values.data(), pool.data(), 0, 1, kCount, nullptr);
      }
    }
    return pool;
  }

  const std::vector<std::uint8_t>& state_;
  std::int32_t tokens_;
  std::mt19937_64 random_;
  std::size_t read_ = 0;
  std::vector<std::uint8_t> grown_;
  std::map<ggml_type, std::vector<std::uint8_t>> pools_;
  std::uint32_t cells_ = 0;
  std::uint32_t layers_ = 0;
};

}  // namespace

std::vector<std::uint8_t> grow_state(const std::vector<std::uint8_t>& state, const std::string& architecture,
                                     int tokens, std::uint32_t seed) {
  const auto layout = layouts().find(architecture);
  if (layout == layouts().end()) die("a cache of " + architecture + " cannot be filled: its state is not known here");
  Grower grower(state, tokens, seed);
  grower.head();
  for (const Part part : layout->second) {
    if (part == Part::kRecurrent) {
      grower.recurrent();
    } else {
      grower.cache(part != Part::kKeys, part == Part::kCoordinates);
    }
  }
  return grower.finish();
}

}  // namespace seriatim_llama
