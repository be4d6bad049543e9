#include "random_node.hpp"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "attention.hpp"
#include "indexer.hpp"
#include "support/mapped_memory.hpp"
#include "top_k.hpp"

namespace seriatim::plugin::testing {
namespace {

using seriatim::testing::MappedMemory;

class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint8_t next() { return at_ < bytes_.size() ? bytes_[at_++] : 0; }
  std::int64_t below(std::int64_t bound) { return next() % bound; }
  bool rarely() { return next() >= 240; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

constexpr std::array kTypes{GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                            GGML_TYPE_Q4_0, GGML_TYPE_Q5_1, GGML_TYPE_I32,  GGML_TYPE_I8};

// Memory that ends where a page that must not be touched begins: nothing is read or written past it unseen, be it by
// code that no sanitizer looks into.
class Fenced {
 public:
  void resize(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(MappedMemory::page_bytes());
    const std::size_t pages = (bytes + page - 1) / page;
    memory_.emplace(static_cast<std::int64_t>((pages + 1) * page));
    memory_->forbid(static_cast<std::int64_t>(pages * page), static_cast<std::int64_t>(page));
    first_ = reinterpret_cast<std::uint8_t*>(memory_->data()) + pages * page - bytes;
    bytes_ = bytes;
  }
  std::uint8_t* data() const { return first_; }
  std::size_t size() const { return bytes_; }
  std::uint8_t* begin() const { return first_; }
  std::uint8_t* end() const { return first_ + bytes_; }
  std::uint8_t& operator[](std::size_t i) const { return first_[i]; }

 private:
  std::optional<MappedMemory> memory_;
  std::uint8_t* first_ = nullptr;
  std::size_t bytes_ = 0;
};

struct Made {
  ggml_tensor tensor{};
  Fenced memory;
};

// Dense, or with gaps between its rows; now and then of another type or with an axis too many.
std::unique_ptr<Made> make(Bytes& bytes, ggml_type type, std::array<std::int64_t, 4> extents, std::uint8_t fill) {
  auto made = std::make_unique<Made>();
  ggml_tensor& t = made->tensor;
  t.type = bytes.rarely() ? kTypes[static_cast<std::size_t>(bytes.below(kTypes.size()))] : type;
  if (bytes.rarely()) extents[static_cast<std::size_t>(bytes.below(4))] = bytes.below(5);
  std::copy(extents.begin(), extents.end(), t.ne);
  const std::int64_t block = ggml_blck_size(t.type);
  if (t.ne[0] % block != 0) t.ne[0] = (t.ne[0] + block - 1) / block * block;
  t.nb[0] = ggml_type_size(t.type);
  t.nb[1] = t.nb[0] * static_cast<std::size_t>(t.ne[0] / block);
  const bool gaps = bytes.rarely();
  for (int axis = 1; axis < 4; ++axis) {
    if (gaps) t.nb[axis] += ggml_type_size(t.type) * static_cast<std::size_t>(bytes.below(3));
    if (axis < 3) t.nb[axis + 1] = t.nb[axis] * static_cast<std::size_t>(std::max<std::int64_t>(t.ne[axis], 1));
  }
  const std::size_t reach = ggml_nelements(&t) == 0 ? 1 : ggml_nbytes(&t);
  made->memory.resize(reach);
  std::uint32_t state = fill;
  for (std::uint8_t& byte : made->memory)
    byte = static_cast<std::uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  if (t.type == GGML_TYPE_F32) {  // numbers rather than noise, and a few that are none
    for (std::size_t i = 0; i + 4 <= reach; i += 4) {
      const float x = static_cast<float>(static_cast<std::int8_t>(made->memory[i])) / 32.0f;
      if (made->memory[i + 1] != 7 || made->memory[i + 2] > 8) std::memcpy(made->memory.data() + i, &x, sizeof x);
    }
  }
  t.data = made->memory.data();
  return made;
}

}  // namespace

Fate run_random_node(std::span<const std::uint8_t> input) {
  Bytes bytes(input);
  const std::int64_t cells = 1 + bytes.next() * (bytes.rarely() ? 8 : 1);
  const std::int64_t tokens = 1 + bytes.below(6), streams = 1 + bytes.below(3);
  const std::int64_t kv_heads = 1 + bytes.below(3), heads = kv_heads * (1 + bytes.below(5));
  const std::int64_t dim = 32 * (1 + bytes.below(4));
  const ggml_type type = kTypes[static_cast<std::size_t>(bytes.below(6))];
  const std::uint8_t fill = bytes.next();
  std::vector<std::unique_ptr<Made>> sources;
  ggml_tensor node{};
  const auto source = [&](ggml_type of, std::array<std::int64_t, 4> extents) {
    sources.push_back(make(bytes, of, extents, static_cast<std::uint8_t>(fill + sources.size())));
    node.src[sources.size() - 1] = bytes.rarely() && bytes.rarely() ? nullptr : &sources.back()->tensor;
  };
  std::array<std::int64_t, 4> out{};
  ggml_type out_type = GGML_TYPE_F32;
  switch (bytes.below(3)) {
    case 0:
      node.op = GGML_OP_TOP_K;
      source(GGML_TYPE_F32, {cells, tokens, kv_heads, streams});
      out = {1 + bytes.below(std::min<std::int64_t>(cells, 200)), tokens, kv_heads, streams};
      out_type = GGML_TYPE_I32;
      break;
    case 1:
      node.op = GGML_OP_LIGHTNING_INDEXER;
      source(GGML_TYPE_F32, {dim, heads, tokens, streams});
      source(type, {dim, 1, cells, streams});
      source(GGML_TYPE_F32, {heads, tokens, 1, streams});
      source(GGML_TYPE_F16, {cells, tokens, 1, bytes.rarely() ? 1 : streams});
      out = {cells, tokens, 1, streams};
      break;
    default: {
      node.op = GGML_OP_FLASH_ATTN_EXT;
      const bool alias = bytes.rarely();
      source(GGML_TYPE_F32, {dim, tokens, heads, streams});
      source(type, {dim, cells, kv_heads, streams});
      source(type, {alias ? dim : 32 * (1 + bytes.below(4)), cells, kv_heads, streams});
      source(GGML_TYPE_F16, {cells, tokens, 1, bytes.rarely() ? 1 : streams});
      if (bytes.below(2) == 1) source(GGML_TYPE_F32, {heads, 1, 1, 1});
      auto& mask = *sources[3];
      for (std::size_t i = 0; i + 2 <= mask.memory.size(); i += 2) {  // mostly hidden
        if (mask.memory[i] < 200) {
          mask.memory[i] = 0x00;
          mask.memory[i + 1] = 0xfc;
        }
      }
      if (alias && node.src[2] != nullptr) node.src[2]->data = sources[1]->tensor.data;
      if (alias && sources[1]->memory.size() < sources[2]->memory.size()) return Fate::kDeclined;
      const float scale = bytes.rarely() ? -1.0f : 0.125f;
      std::memcpy(node.op_params, &scale, sizeof scale);
      node.op_params[4] = bytes.next();
      out = {sources[2]->tensor.ne[0], heads, tokens, streams};
    }
  }
  const auto made = make(bytes, out_type, out, 0);
  std::copy_n(made->tensor.ne, 4, node.ne);
  std::copy_n(made->tensor.nb, 4, node.nb);
  node.type = made->tensor.type;
  node.data = made->tensor.data;
  Workers workers;
  workers.set_threads(1 + static_cast<int>(bytes.below(2)));
  const auto fate = [](Outcome o) { return o == Outcome::kDone ? Fate::kComputed : Fate::kLeft; };
  if (fits_top_k(&node)) return fate(TopK().compute(&node, workers, {}));
  if (fits_indexer(&node)) return fate(Indexer().compute(&node, workers, {}));
  if (unfit_attention(&node).empty()) return fate(Attention().compute(&node, workers, {}));
  return Fate::kDeclined;
}

}  // namespace seriatim::plugin::testing
