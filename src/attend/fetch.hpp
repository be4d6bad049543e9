// Cache lines fetched before they are needed, a few at a time between other work. Rows are walked in several streams side by
// side, each row after row: what lies together in memory is asked for together, and the processor's own prefetchers, which
// need some lines of a page before they run ahead of it, are doing so in one stream while they learn in another.
//
// An address whose page is not in the processor's table of translations holds up even a prefetch, and all that follows it,
// until the page is looked up. Looked up many at once the pages cost little more than one: see open_pages.
#pragma once

#include <array>
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
  Fetch(const FetchRows& rows, std::size_t steps) : row_bytes_(rows.row_bytes) {
    const std::size_t row_lines = (rows.row_bytes + kLineBytes - 1) / kLineBytes;
    for (std::size_t s = 0; s < kStreams; ++s) {
      streams_[s] = {rows.rows + s * rows.count / kStreams, rows.rows + (s + 1) * rows.count / kStreams, nullptr, nullptr};
      open_row(streams_[s]);
    }
    left_ = (rows.count + kStreams - 1) / kStreams * row_lines;
    per_step_ = steps == 0 ? 0 : (left_ + steps - 1) / steps;
  }

  void step() {
    for (std::size_t i = 0; i < per_step_ && left_ > 0; ++i) fetch_lines();
  }
  void rest() {
    while (left_ > 0) fetch_lines();
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

  // Has memory that is about to be written brought in: a miss here and there among the work costs more than all together.
  static void open_scratch(const void* memory, std::size_t bytes) {
    const auto* line = static_cast<const std::byte*>(memory);
    for (std::size_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(line + i, 1, 3);
  }

 private:
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::uintptr_t kPageBytes = 4096;  // the smallest there is
  static constexpr std::size_t kStreams = 4;

  struct Stream {
    const std::byte* const* row = nullptr;
    const std::byte* const* end_row = nullptr;
    const std::byte* next = nullptr;  // null: nothing is left
    const std::byte* end = nullptr;
  };

  static void prefetch(const std::byte* line) { __builtin_prefetch(line, 0, 3); }  // never faults

  // A line of every stream.
  void fetch_lines() {
    --left_;
    for (Stream& stream : streams_) {
      if (stream.next == nullptr) continue;
      prefetch(stream.next);
      stream.next += kLineBytes;
      if (stream.next >= stream.end) open_row(stream);
    }
  }
  void open_row(Stream& stream) const {
    if (stream.row == stream.end_row) {
      stream.next = nullptr;
      return;
    }
    stream.next = *stream.row++;
    stream.end = stream.next + row_bytes_;
  }

  std::array<Stream, kStreams> streams_;
  std::size_t row_bytes_ = 0;
  std::size_t per_step_ = 0;
  std::size_t left_ = 0;  // lines of the longest stream
};

}  // namespace seriatim
