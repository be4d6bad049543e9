// Cache lines fetched before they are needed, a few at a time between other work. Row after row, so that what lies together
// in memory is asked for together.
//
// An address whose page is not in the processor's table of translations holds up even a prefetch, and all that follows it,
// until the page is looked up. Looked up many at once the pages cost little more than one: see open_pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace seriatim {

class Fetch {
 public:
  struct Rows {
    const std::byte* const* next = nullptr;
    const std::byte* const* end = nullptr;
    std::size_t row_bytes = 0;
  };

  Fetch() = default;
  // `first` and then `second`, in about so many steps.
  Fetch(const Rows& first, const Rows& second, std::size_t steps) : rows_(first), more_(second) {
    per_step_ = (lines_of(first) + lines_of(second) + steps - 1) / steps;
    open_row();
  }

  void some(std::size_t steps) {
    for (std::size_t i = 0; i < steps * per_step_ && next_ != nullptr; ++i) fetch_line();
  }
  void rest() {
    while (next_ != nullptr) fetch_line();
  }

  // Has the pages of the rows looked up, all together.
  static void open_pages(const Rows& rows) {
    std::uintptr_t open = 0;
    for (const std::byte* const* row = rows.next; row != rows.end; ++row) {
      const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(*row) / kPageBytes;
      if (page != open) fetch(*row);
      open = page;
    }
  }

 private:
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::uintptr_t kPageBytes = 4096;  // the smallest there is

  static void fetch(const std::byte* line) { __builtin_prefetch(line, 0, 3); }  // never faults

  static std::size_t lines_of(const Rows& rows) {
    return static_cast<std::size_t>(rows.end - rows.next) * ((rows.row_bytes + kLineBytes - 1) / kLineBytes);
  }
  void fetch_line() {
    fetch(next_);
    next_ += kLineBytes;
    if (next_ >= end_) open_row();
  }
  void open_row() {
    if (rows_.next == rows_.end) rows_ = std::exchange(more_, {});
    if (rows_.next == rows_.end) {
      next_ = nullptr;
      return;
    }
    next_ = *rows_.next++;
    end_ = next_ + rows_.row_bytes;
  }

  Rows rows_;
  Rows more_;
  std::size_t per_step_ = 0;
  const std::byte* next_ = nullptr;  // null: nothing is left
  const std::byte* end_ = nullptr;
};

}  // namespace seriatim
