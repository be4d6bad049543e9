// A story's keys and values laid out as an engine might keep them. Memory that holds no token of the run is NaN
// throughout, so a read of a wrong place shows.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "seriatim/borrow.hpp"
#include "support/path.hpp"

namespace seriatim::testing {

// What lies after what, outermost first: p pages, t tokens, h heads; dims are innermost. An array has no pages.
struct LentLayout {
  enum class Form { kArray, kPool, kAddresses };
  Form form = Form::kArray;
  std::string_view order = "th";  // of tokens and heads within an array or a page
  std::int64_t page_tokens = 16;
  std::int64_t first_slot = 0;
  std::int64_t padding = 0;   // elements between one vector and the next
  bool wide_entries = false;  // the block table is i64
  std::uint64_t seed = 1;     // of the pages' order in the pool
};

// Strided memory full of NaN.
class LentTensor {
 public:
  LentTensor() = default;
  // [pages, tokens, heads, dim], of which the pages are outermost.
  LentTensor(DType dtype, std::array<std::int64_t, 4> shape, std::string_view order, std::int64_t padding) {
    view_.dtype = dtype;
    view_.rank = 4;
    view_.shape = shape;
    view_.stride_bytes[3] = dtype_bytes(dtype);
    std::int64_t bytes = row_bytes(dtype, shape[3] + padding);
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::size_t axis = order[i] == 't' ? 1 : 2;
      view_.stride_bytes[axis] = bytes;
      bytes *= shape[axis];
    }
    view_.stride_bytes[0] = bytes;
    bytes_.assign(static_cast<std::size_t>(bytes * shape[0]), std::byte{0xff});
  }
  Tensor pages() {
    Tensor view = view_;
    view.data = bytes_.data();
    return view;
  }

 private:
  Tensor view_;
  std::vector<std::byte> bytes_;
};

class LentStory {
 public:
  // The first `tokens` tokens of a story.
  LentStory(const Story& story, std::int64_t tokens, const LentLayout& layout)
      : layout_(layout), run_{story.anchor, tokens} {
    const std::int64_t slots = layout.first_slot + tokens;
    const bool array = layout.form == LentLayout::Form::kArray;
    const std::int64_t page_tokens = array ? slots + 3 : layout.page_tokens;
    const std::int64_t used = array ? 1 : (slots + page_tokens - 1) / page_tokens;
    const std::int64_t pages = array ? 1 : 2 * used + 1;
    Random random(layout.seed);
    std::vector<std::int64_t> order = every_token(0, pages);
    random.shuffle(std::span(order));
    order.resize(static_cast<std::size_t>(used));
    place(story.keys, story.geometry.head_dim(), pages, page_tokens, order, keys_memory_, tensors_.keys, key_pages_);
    if (!story.geometry.values_alias_keys()) {
      place(story.values, story.geometry.value_dim(), pages, page_tokens, order, values_memory_, tensors_.values,
            value_pages_);
    }
    tensors_.first_slot = layout.first_slot;
    const auto before = layout.first_slot / page_tokens;  // pages of no token
    for (std::int64_t i = 0; i < before; ++i) order[static_cast<std::size_t>(i)] = -1;
    for (const std::int64_t page : order) {
      wide_.push_back(page);
      narrow_.push_back(static_cast<std::int32_t>(page));
    }
    if (layout.form == LentLayout::Form::kPool) {
      tensors_.block_table = layout.wide_entries ? dense_view(std::as_const(wide_).data(), DType::kI64, {used})
                                                 : dense_view(std::as_const(narrow_).data(), DType::kI32, {used});
    } else if (layout.form == LentLayout::Form::kAddresses) {
      tensors_.key_pages = key_pages_;
      tensors_.value_pages = value_pages_;
    }
    pool(story, tokens);
  }

  VisibleRun run() const { return run_; }
  const BorrowedTensors& tensors() const { return tensors_; }
  BorrowedTensors& tensors() { return tensors_; }
  std::vector<std::int32_t>& entries() { return narrow_; }

 private:
  void place(const HostTensor& from, std::int64_t dim, std::int64_t pages, std::int64_t page_tokens,
             const std::vector<std::int64_t>& order, LentTensor& memory, ConstTensor& tensor,
             std::vector<const std::byte*>& addresses) {
    const ConstTensor source = from.view();
    memory = LentTensor(from.dtype(), {pages, page_tokens, source.shape[1], dim}, layout_.order, layout_.padding);
    const Tensor pool = memory.pages();
    for (std::int64_t t = 0; t < run_.tokens; ++t) {
      const std::int64_t slot = layout_.first_slot + t;
      for (std::int64_t h = 0; h < source.shape[1]; ++h) {
        std::memcpy(pool.at(order[static_cast<std::size_t>(slot / page_tokens)], slot % page_tokens, h),
                    source.at(t, h), static_cast<std::size_t>(dim * dtype_bytes(from.dtype())));
      }
    }
    for (const std::int64_t page : order) addresses.push_back(pool.at(page));
    tensor = layout_.form == LentLayout::Form::kPool ? as_const(pool) : row_of(as_const(pool), order[0]);
    if (layout_.form == LentLayout::Form::kAddresses) tensor.data = nullptr;
  }

  void pool(const Story& story, std::int64_t tokens) {
    const Geometry& g = story.geometry;
    const std::int64_t panels = g.groups(tokens) / PooledKeys::kPanelGroups + 1;
    panels_ = HostTensor(g.index_dtype(), {panels, g.index_dim(), PooledKeys::kPanelGroups});
    auto pooler = PanelPooler::create(g, story.norm_weight);
    ASSERT_TRUE(pooler.ok()) << pooler.status().message();
    PoolAsk ask{story.index_keys.rows(0, tokens), {}, run_, 0, 0, panels_.writable()};
    std::vector<std::int64_t> coordinates;
    for (std::size_t axis = 0; axis < 3 && !story.coordinates.empty(); ++axis) {
      for (std::int64_t t = 0; t < tokens; ++t)
        coordinates.push_back(story.coordinates[static_cast<std::size_t>(t)][axis]);
    }
    if (!coordinates.empty()) ask.coordinates = dense_view(std::as_const(coordinates).data(), DType::kI64, {3, tokens});
    const auto largest = pooler->pool({&ask, 1});
    ASSERT_TRUE(largest.ok()) << largest.status().message();
    tensors_.panels = panels_.view();
    tensors_.panels_max_abs = *largest;
  }

  const LentLayout layout_;
  const VisibleRun run_;
  LentTensor keys_memory_;
  LentTensor values_memory_;
  HostTensor panels_;
  std::vector<const std::byte*> key_pages_;
  std::vector<const std::byte*> value_pages_;
  std::vector<std::int64_t> wide_;
  std::vector<std::int32_t> narrow_;
  BorrowedTensors tensors_;
};

// Every token of the view's run asked at once.
inline Answers ask_all(const LayerView& view, const Story& story, Kernels kernels = default_kernels()) {
  Answers answers(story.geometry, view.run.tokens);
  Engine engine = engine_for(story.geometry, view.run.tokens, serial_executor(), kernels);
  const Status status = ask(view, story, every_token(0, view.run.tokens), engine, answers);
  EXPECT_TRUE(status.ok()) << status.message();
  return answers;
}

}  // namespace seriatim::testing
