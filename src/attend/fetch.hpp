// Cache lines fetched before they are needed, a few at a time between other work. Row after row, so that what lies
// together in memory is asked for together. Few at a time, because processors drop prefetches that come too fast: a
// line a step came in sooner than four streams of rows side by side, which a plain read is faster by.
//
// An address whose page is not in the processor's table of translations holds up even a prefetch, and all that follows
// it, until the page is looked up. Looked up many at once the pages cost little more than one: see open_pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace seriatim {

// `rows` addresses of so many bytes each.
struct FetchRows {
  const std::byte* const* rows = nullptr;
  std::size_t count = 0;
  std::size_t row_bytes = 0;
};

class Fetch {
 public:
  Fetch() = default;
  // In about so many steps.
  Fetch(const FetchRows& rows, std::size_t steps)
      : row_(rows.rows), end_row_(rows.rows + rows.count), row_bytes_(rows.row_bytes) {
    const std::size_t lines = rows.count * ((rows.row_bytes + kLineBytes - 1) / kLineBytes);
    per_step_ = steps == 0 ? 0 : (lines + steps - 1) / steps;
    open_row();
  }

  void step() {
    for (std::size_t i = 0; i < per_step_ && next_ != nullptr; ++i) fetch_line();
  }
  void rest() {
    while (next_ != nullptr) fetch_line();
  }

  // Has the pages of the rows looked up, all together.
  static void open_pages(const FetchRows& rows) {
    std::uintptr_t open = 0;
    for (std::size_t i = 0; i < rows.count; ++i) {
      const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(rows.rows[i]) / kPageBytes;
      if (page != open) prefetch(rows.rows[i]);
      open = page;
    }
  }

  // Has memory that is about to be written brought in: a miss here and there among the work costs more than all
  // together.
  static void open_scratch(const void* memory, std::size_t bytes) {
    const auto* line = static_cast<const std::byte*>(memory);
    for (std::size_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(line + i, 1, 3);
  }

 private:
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::uintptr_t kPageBytes = 4096;  // the smallest there is

  static void prefetch(const std::byte* line) { __builtin_prefetch(line, 0, 3); }  // never faults

  void fetch_line() {
    prefetch(next_);
    next_ += kLineBytes;
    if (next_ >= end_) open_row();
  }
  void open_row() {
    if (row_ == end_row_) {
      next_ = nullptr;
      return;
    }
    next_ = *row_++;
    end_ = next_ + row_bytes_;
  }

  const std::byte* const* row_ = nullptr;
  const std::byte* const* end_row_ = nullptr;
  std::size_t row_bytes_ = 0;
  std::size_t per_step_ = 0;
  const std::byte* next_ = nullptr;  // null: nothing is left
  const std::byte* end_ = nullptr;
};

}  // namespace seriatim
