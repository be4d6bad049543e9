// A layer laid out by hand, page by page, each page in memory of its own that can be made unreadable.
//
// Slots that hold no token are NaN throughout, so a read of a wrong slot shows.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cache/group_block.hpp"
#include "seriatim/cache.hpp"
#include "support/mapped_memory.hpp"
#include "support/random.hpp"

namespace seriatim::testing {

class PlainLayer {
 public:
  // Takes   keys [n, kv_heads, head_dim]; values [n, kv_heads, value_dim], or an empty tensor where they alias the keys
  PlainLayer(const Geometry& geometry, std::int64_t anchor, const HostTensor& keys, const HostTensor* values,
             std::int64_t page_tokens, std::int64_t first_slot = 0)
      : geometry_(geometry) {
    const std::int64_t tokens = keys.view().shape[0];
    view_.geometry = &geometry_;
    view_.run = {anchor, tokens};
    view_.page_tokens = page_tokens;
    view_.first_slot = first_slot;
    // Blocks as a cache has them, or one block where groups do not fill the page.
    const std::int64_t r = geometry.group_tokens();
    const GroupBlock block = GroupBlock::of(geometry, page_tokens % r == 0 ? r : page_tokens);
    view_.set_strides(block);
    const std::int64_t page_bytes = page_tokens / block.tokens * block.bytes;
    for (std::int64_t p = 0; p * page_tokens < first_slot + tokens; ++p) add_page(page_bytes, memory_, pages_);
    view_.pages = pages_.data();
    place(keys, block.key_bytes, [&](auto slot, auto head) { return block.key_at(slot, head); });
    if (values != nullptr)
      place(*values, block.value_bytes, [&](auto slot, auto head) { return block.value_at(slot, head); });
  }

  // Adds pooled keys [G, index_dim], one page per panel of 16.
  void add_pooled(const HostTensor& pooled) {
    const std::int64_t groups = pooled.view().shape[0];
    const std::int64_t panel = panel_bytes(geometry_, PooledKeys::kPanelGroups);
    for (std::int64_t first = 0; first < groups; first += PooledKeys::kPanelGroups) {
      add_page(panel, pooled_memory_, pooled_pages_);
      const std::int64_t count = std::min(PooledKeys::kPanelGroups, groups - first);
      EXPECT_TRUE(pack_pooled_keys(geometry_, pooled.rows(first, count), pooled_memory_.back()->data()).ok());
    }
    view_.pooled.pages = pooled_pages_.data();
    view_.pooled.groups = groups;
    view_.pooled.dim = geometry_.index_dim();
    view_.pooled.dtype = geometry_.index_dtype();
  }

  const LayerView& view() const { return view_; }
  LayerView& view() { return view_; }
  std::int64_t pages() const { return static_cast<std::int64_t>(pages_.size()); }
  std::int64_t pooled_pages() const { return static_cast<std::int64_t>(pooled_pages_.size()); }
  // From now on a read of this page ends the process.
  void forbid_page(std::int64_t page) { forbid(*memory_[static_cast<std::size_t>(page)]); }
  void forbid_pooled_page(std::int64_t page) { forbid(*pooled_memory_[static_cast<std::size_t>(page)]); }

 private:
  using Memory = std::vector<std::unique_ptr<MappedMemory>>;

  static void add_page(std::int64_t bytes, Memory& memory, std::vector<const std::byte*>& pages) {
    memory.push_back(std::make_unique<MappedMemory>(bytes));
    ASSERT_NE(memory.back()->data(), nullptr);
    std::memset(memory.back()->data(), 0xff, static_cast<std::size_t>(bytes));
    pages.push_back(memory.back()->data());
  }

  static void forbid(MappedMemory& memory) { ASSERT_TRUE(memory.forbid(0, MappedMemory::page_bytes())); }

  void place(const HostTensor& from, std::int64_t vector_bytes, auto at) {
    const ConstTensor view = from.view();
    for (std::int64_t t = 0; t < view.shape[0]; ++t) {
      const std::int64_t slot = view_.first_slot + t;
      std::byte* page = memory_[static_cast<std::size_t>(slot / view_.page_tokens)]->data();
      for (std::int64_t h = 0; h < geometry_.kv_heads(); ++h)
        std::memcpy(page + at(slot % view_.page_tokens, h), view.at(t, h), static_cast<std::size_t>(vector_bytes));
    }
  }

  const Geometry geometry_;
  Memory memory_;
  Memory pooled_memory_;
  std::vector<const std::byte*> pages_;
  std::vector<const std::byte*> pooled_pages_;
  LayerView view_;
};

}  // namespace seriatim::testing
