// A page table: which pages hold a sequence's slots, in order, and where their bytes are.
//
// A table is private to one staged sequence until it is published and never changes afterwards. States share it for as
// long as their pages are the same; only a new or replaced page makes another one. Making one is the only work that
// grows with a sequence, so it is kept small: addresses are copied as they are, and pages are held in chunks that
// tables share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cache/ledger.hpp"
#include "cache/pages.hpp"
#include "cache/ref.hpp"

namespace seriatim {

// Holds neighbouring pages of tables. Only a chunk that one table alone holds is changed.
struct Chunk : Counted {
  static constexpr std::int64_t kPages = 32;

  explicit Chunk(Ledger& l);
  ~Chunk();
  std::array<Ref<Page>, kPages> pages;
  Ledger& ledger;
};

inline void dispose(Chunk* chunk) noexcept { delete chunk; }

class Table : public Counted {
 public:
  // A table with pages [begin, end) of `from` (null when there are none) and room for `capacity`. Throws bad_alloc.
  static Ref<Table> make(Ledger& ledger, const Table* from, std::int64_t begin, std::int64_t end,
                         std::int64_t capacity);

  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }
  Page& page(std::int64_t i) const { return *chunk(i)->pages[place(i)]; }
  const std::byte* const* data() const { return data_; }

  // Whether this table is the only one that holds its last page. See Counted::exclusive.
  bool holds_last_page_alone() const;

  // While private. There must be room. All but pop_to throw bad_alloc and change nothing then.
  void push(Ref<Page> page);
  void replace_last(Ref<Page> page);
  void pop_to(std::int64_t length) noexcept;

  friend void dispose(const Table* table) noexcept;

 private:
  Table(Ledger& ledger, std::int64_t skip, std::int64_t capacity);
  static std::int64_t chunks_for(std::int64_t skip, std::int64_t capacity) {
    return (skip + capacity + Chunk::kPages - 1) / Chunk::kPages;
  }
  static std::size_t bytes_for(std::int64_t skip, std::int64_t capacity);

  const Ref<Chunk>& chunk(std::int64_t i) const { return chunks_[(skip_ + i) / Chunk::kPages]; }
  std::size_t place(std::int64_t i) const { return static_cast<std::size_t>((skip_ + i) % Chunk::kPages); }
  Ref<Page>& own_slot(std::int64_t i);
  void forget_pages_around();

  Ledger& ledger_;
  const std::int64_t skip_;  // places of the first chunk before page 0
  const std::int64_t capacity_;
  std::int64_t length_ = 0;
  const std::byte** data_ = nullptr;  // [capacity], behind this object
  Ref<Chunk>* chunks_ = nullptr;      // [chunks_for(skip, capacity)], behind data_
};

}  // namespace seriatim
