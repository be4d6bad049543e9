// A page table: which pages hold a sequence's slots, in order, and where their bytes are.
//
// A table is private to one staged sequence until it is published and never changes afterwards. States share it for as
// long as their pages are the same; only a new or replaced page makes another one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/ledger.hpp"
#include "cache/pages.hpp"
#include "cache/ref.hpp"

namespace seriatim {

class Table : public Counted {
 public:
  // A table with pages [begin, end) of `from` (null when there are none) and room for `capacity`. Throws bad_alloc.
  static Ref<Table> make(Ledger& ledger, const Table* from, std::int64_t begin, std::int64_t end, std::int64_t capacity);

  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }
  Page& page(std::int64_t i) const { return *pages_[i]; }
  const std::byte* const* data() const { return data_; }

  // While private. There must be room.
  void push(Ref<Page> page) noexcept;
  void replace(std::int64_t i, Ref<Page> page) noexcept;
  void pop_to(std::int64_t length) noexcept;

  friend void dispose(const Table* table) noexcept;

 private:
  Table(Ledger& ledger, std::int64_t capacity) : ledger_(ledger), capacity_(capacity) {}
  static std::size_t bytes_for(std::int64_t capacity);

  Ledger& ledger_;
  const std::int64_t capacity_;
  std::int64_t length_ = 0;
  const std::byte** data_ = nullptr;  // [capacity], behind this object
  Ref<Page>* pages_ = nullptr;        // [length] are alive; behind data_
};

}  // namespace seriatim
