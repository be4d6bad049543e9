// The staged growth of one span of slots: which slots the writer may fill, before anybody sees them.
#pragma once

#include <cstdint>

#include "cache/layout.hpp"
#include "cache/pages.hpp"
#include "cache/state.hpp"
#include "cache/table.hpp"

namespace seriatim {

// Grows and shrinks at its end. Slots of the base are never touched: the last, partly filled page is written in place
// where its mark allows it and copied otherwise. What is claimed is given back by shrink() or by the destructor.
class PageRun {
 public:
  enum class Kind { kTokens, kGroups };

  // `base` must outlive this; `slots` of it are in use.
  PageRun(Store& store, Kind kind, const Span& base, std::int64_t slots);
  ~PageRun() { shrink(base_slots_); }
  PageRun(const PageRun&) = delete;
  PageRun& operator=(const PageRun&) = delete;

  // Makes slots up to `slots` writable. Errors  Capacity, OutOfMemory; may throw bad_alloc. On failure nothing more is
  // claimed than before.
  Status claim(std::int64_t slots);

  // Gives back what lies past `slots`, which is at least the base's count.
  void shrink(std::int64_t slots) noexcept;

  std::int64_t claimed() const { return claimed_; }
  std::int64_t first() const { return base_.first; }
  const Table* table() const { return own_ ? own_.get() : base_.table.get(); }

  // The address of a claimed slot's page, and the slot within it.
  struct Slot {
    std::byte* page = nullptr;
    std::int64_t in_page = 0;
  };
  Slot slot(std::int64_t i) const;

  // What a new state refers to that holds `slots` slots, valid once the rest is shrunk away.
  Span published(std::int64_t slots) const {
    return slots == base_slots_ ? base_ : Span{Ref<const Table>(table()), base_.first};
  }
  // The claimed slots are public now; nothing is given back any more.
  void keep() noexcept;

 private:
  Status grow(std::int64_t slots);
  Status open_last_page();
  Status copy_last_page(std::int64_t index, std::int64_t in_page);
  void make_room(std::int64_t pages);
  void mark_last_page() noexcept;

  Store& store_;
  PagePool& pool_;
  const Kind kind_;
  const Span& base_;
  const std::int64_t page_slots_;
  const std::int64_t base_slots_;
  std::int64_t claimed_;
  bool opened_ = false;
  Ref<Table> own_;              // null while the base's table serves
  Page* in_place_ = nullptr;    // the base's last page, while it is written in place
  std::int64_t base_mark_ = 0;  // its mark before
};

}  // namespace seriatim
