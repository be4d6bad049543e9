#include "cache/page_run.hpp"

#include <algorithm>

namespace seriatim {

PageRun::PageRun(Store& store, Kind kind, const Span& base, std::int64_t slots)
    : store_(store),
      pool_(kind == Kind::kTokens ? store.token_pages : store.pooled_pages),
      kind_(kind),
      base_(base),
      page_slots_(kind == Kind::kTokens ? store.layout.page_tokens : store.layout.page_groups),
      base_slots_(slots),
      claimed_(slots) {}

Status PageRun::claim(std::int64_t slots) {
  if (slots <= claimed_) return {};
  const std::int64_t before = claimed_;
  Status status;
  try {
    status = grow(slots);
  } catch (...) {
    claimed_ = slots;
    shrink(before);
    throw;
  }
  claimed_ = slots;
  if (!status.ok()) {
    shrink(before);
    return status;
  }
  mark_last_page();
  return {};
}

Status PageRun::grow(std::int64_t slots) {
  if (Status status = open_last_page(); !status.ok()) return status;
  const std::int64_t pages = pages_for(base_.first, slots, page_slots_);
  if (table() != nullptr && table()->length() > 0) {  // the page that was last is about to be filled
    Page& last = table()->page(table()->length() - 1);
    if (pages > table()->length()) last.mark = std::max(last.mark, page_slots_);
  }
  while ((table() == nullptr ? 0 : table()->length()) < pages) {
    auto page = pool_.acquire();
    if (!page.ok()) return page.status();
    make_room(pages);
    page.value()->mark = page_slots_;
    own_->push(std::move(page.value()));
  }
  return {};
}

Status PageRun::open_last_page() {
  if (opened_) return {};
  const std::int64_t in_page = base_slots_ == 0 ? 0 : (base_.first + base_slots_) % page_slots_;
  if (in_page != 0) {
    const std::int64_t index = base_.table->length() - 1;
    Page& page = base_.table->page(index);
    const bool writable = !page.mapping && !page.claimed;
    // A page that only this table holds may have been filled further by tokens that are truncated by now. A reader that
    // arrives meanwhile takes the public state, which ends at `in_page`.
    if (writable && base_.table->holds_last_page_alone()) page.mark = in_page;
    if (writable && page.mark == in_page) {
      page.claimed = true;
      in_place_ = &page;
      base_mark_ = in_page;
    } else if (Status status = copy_last_page(index, in_page); !status.ok()) {
      return status;
    }
  }
  opened_ = true;
  return {};
}

Status PageRun::copy_last_page(std::int64_t index, std::int64_t in_page) {
  auto page = pool_.acquire();
  if (!page.ok()) return page.status();
  make_room(index + 1);
  const std::int64_t begin = index == 0 ? base_.first : 0;
  const auto copy = kind_ == Kind::kTokens ? copy_token_slots : copy_pooled_slots;
  copy(store_.geometry, store_.layout, base_.table->page(index).data, page.value()->data, begin, in_page);
  page.value()->mark = in_page;
  own_->replace_last(std::move(page.value()));
  return {};
}

// A private table with room for `pages`; doubling keeps growth page by page linear.
void PageRun::make_room(std::int64_t pages) {
  if (own_ && own_->capacity() >= pages) return;
  const Table* from = table();
  const std::int64_t length = from == nullptr ? 0 : from->length();
  const std::int64_t capacity = own_ ? std::max(pages, 2 * own_->capacity()) : std::max(pages, length);
  own_ = Table::make(store_.bookkeeping_bytes, from, 0, length, capacity);
}

void PageRun::mark_last_page() noexcept {
  const std::int64_t index = table()->length() - 1;
  table()->page(index).mark = base_.first + claimed_ - index * page_slots_;
}

void PageRun::shrink(std::int64_t slots) noexcept {
  if (slots >= claimed_) return;
  claimed_ = slots;
  if (slots == base_slots_) {
    own_.reset();
    if (in_place_ != nullptr) {
      in_place_->mark = base_mark_;
      in_place_->claimed = false;
      in_place_ = nullptr;
    }
    opened_ = false;
    return;
  }
  if (own_) own_->pop_to(pages_for(base_.first, slots, page_slots_));
  mark_last_page();
}

PageRun::Slot PageRun::slot(std::int64_t i) const {
  const std::int64_t slot = base_.first + i;
  return {table()->page(slot / page_slots_).data, slot % page_slots_};
}

void PageRun::keep() noexcept {
  if (in_place_ != nullptr) in_place_->claimed = false;
  in_place_ = nullptr;
}

}  // namespace seriatim
