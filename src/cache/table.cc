#include "cache/table.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

namespace seriatim {

Chunk::Chunk(Ledger& l) : ledger(l) { ledger += static_cast<std::int64_t>(sizeof(Chunk)); }
Chunk::~Chunk() { ledger -= static_cast<std::int64_t>(sizeof(Chunk)); }

std::size_t Table::bytes_for(std::int64_t skip, std::int64_t capacity) {
  return sizeof(Table) + static_cast<std::size_t>(capacity) * sizeof(const std::byte*) +
         static_cast<std::size_t>(chunks_for(skip, capacity)) * sizeof(Ref<Chunk>);
}

Table::Table(Ledger& ledger, std::int64_t skip, std::int64_t capacity)
    : ledger_(ledger), skip_(skip), capacity_(capacity) {
  data_ = reinterpret_cast<const std::byte**>(reinterpret_cast<std::byte*>(this) + sizeof(Table));
  chunks_ = reinterpret_cast<Ref<Chunk>*>(data_ + capacity);
  std::uninitialized_value_construct_n(chunks_, chunks_for(skip, capacity));
  ledger_ += static_cast<std::int64_t>(bytes_for(skip, capacity));
}

Ref<Table> Table::make(Ledger& ledger, const Table* from, std::int64_t begin, std::int64_t end, std::int64_t capacity) {
  const std::int64_t first = from == nullptr ? 0 : from->skip_ + begin;
  const std::int64_t skip = first % Chunk::kPages;
  Ref<Table> table(new (::operator new(bytes_for(skip, capacity))) Table(ledger, skip, capacity));
  if (begin == end) return table;
  std::copy_n(from->data_ + begin, end - begin, table->data_);
  std::copy_n(from->chunks_ + first / Chunk::kPages, chunks_for(skip, end - begin), table->chunks_);
  table->length_ = end - begin;
  table->forget_pages_around();
  return table;
}

// Shared chunks at either end may hold pages that are not this table's; it must not keep them.
void Table::forget_pages_around() {
  const auto forget = [this](std::int64_t i, std::int64_t from, std::int64_t to) {
    const auto& pages = chunk(i)->pages;
    if (std::none_of(pages.begin() + from, pages.begin() + to,
                     [](const Ref<Page>& page) { return static_cast<bool>(page); }))
      return;
    own_slot(i);
    for (std::int64_t p = from; p < to; ++p) chunk(i)->pages[static_cast<std::size_t>(p)].reset();
  };
  forget(0, 0, skip_);
  forget(length_ - 1, static_cast<std::int64_t>(place(length_ - 1)) + 1, Chunk::kPages);
}

// The place of page i in a chunk that nobody else holds.
Ref<Page>& Table::own_slot(std::int64_t i) {
  Ref<Chunk>& held = chunks_[(skip_ + i) / Chunk::kPages];
  if (!held || !held->exclusive()) {
    Ref<Chunk> own(new Chunk(ledger_));
    if (held) own->pages = held->pages;
    held = std::move(own);
  }
  return held->pages[place(i)];
}

bool Table::holds_last_page_alone() const {
  return exclusive() && chunk(length_ - 1)->exclusive() && page(length_ - 1).exclusive();
}

void Table::push(Ref<Page> page) {
  Ref<Page>& slot = own_slot(length_);
  data_[length_++] = page->data;
  slot = std::move(page);
}

void Table::replace_last(Ref<Page> page) {
  Ref<Page>& slot = own_slot(length_ - 1);
  data_[length_ - 1] = page->data;
  slot = std::move(page);
}

void Table::pop_to(std::int64_t length) noexcept {
  for (; length_ > length; --length_) {
    Ref<Chunk>& held = chunks_[(skip_ + length_ - 1) / Chunk::kPages];
    held->pages[place(length_ - 1)].reset();  // pushed while private, so the chunk is this table's own
    if (place(length_ - 1) == 0 || length_ == 1) held.reset();
  }
}

void dispose(const Table* table) noexcept {
  auto* last = const_cast<Table*>(table);  // every table was made mutable, and nobody else is left
  std::destroy_n(last->chunks_, Table::chunks_for(last->skip_, last->capacity_));
  last->ledger_ -= static_cast<std::int64_t>(Table::bytes_for(last->skip_, last->capacity_));
  std::destroy_at(last);
  ::operator delete(last);
}

}  // namespace seriatim
