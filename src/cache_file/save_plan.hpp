// Which pages a file will hold, in which order, and which of their slots are somebody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache_file/save.hpp"

namespace seriatim {

struct SlotRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct PlannedPage {
  const std::byte* data = nullptr;
  std::vector<SlotRange> live;  // may overlap: one per sequence and place
  bool all_live(std::int64_t page_slots) const;
};

struct SavePlan {
  std::vector<PlannedPage> token_pages;  // each page once
  std::vector<PlannedPage> pooled_pages;
  std::vector<std::int64_t> sequences;    // rows of the section
  std::vector<std::int64_t> token_table;  // page numbers, sequence after sequence
  std::vector<std::int64_t> pooled_table;

  // Throws bad_alloc.
  static SavePlan make(const Store& store, std::span<const SavedSequence> sequences);
};

}  // namespace seriatim
