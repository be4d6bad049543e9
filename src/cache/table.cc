#include "cache/table.hpp"

#include <memory>
#include <new>
#include <utility>

namespace seriatim {

std::size_t Table::bytes_for(std::int64_t capacity) {
  return sizeof(Table) + static_cast<std::size_t>(capacity) * (sizeof(const std::byte*) + sizeof(Ref<Page>));
}

Ref<Table> Table::make(Ledger& ledger, const Table* from, std::int64_t begin, std::int64_t end, std::int64_t capacity) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes_for(capacity)));
  auto* table = new (memory) Table(ledger, capacity);
  table->data_ = reinterpret_cast<const std::byte**>(memory + sizeof(Table));
  table->pages_ = reinterpret_cast<Ref<Page>*>(table->data_ + capacity);
  ledger += static_cast<std::int64_t>(bytes_for(capacity));
  for (std::int64_t i = begin; i < end; ++i) table->push(from->pages_[i]);
  return Ref<Table>(table);
}

void Table::push(Ref<Page> page) noexcept {
  data_[length_] = page->data;
  std::construct_at(pages_ + length_, std::move(page));
  ++length_;
}

void Table::replace(std::int64_t i, Ref<Page> page) noexcept {
  data_[i] = page->data;
  pages_[i] = std::move(page);
}

void Table::pop_to(std::int64_t length) noexcept {
  while (length_ > length) std::destroy_at(pages_ + --length_);
}

void dispose(const Table* table) noexcept {
  auto* last = const_cast<Table*>(table);  // every table was made mutable, and nobody else is left
  last->pop_to(0);
  last->ledger_ -= static_cast<std::int64_t>(Table::bytes_for(last->capacity_));
  std::destroy_at(last);
  ::operator delete(last);
}

}  // namespace seriatim
