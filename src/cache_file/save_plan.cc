#include "cache_file/save_plan.hpp"

#include <algorithm>
#include <unordered_map>

namespace seriatim {
namespace {

// Numbers pages in the order in which they are met.
class Numbering {
 public:
  Numbering(std::vector<PlannedPage>& pages, std::vector<std::int64_t>& table, std::int64_t page_slots)
      : pages_(pages), table_(table), page_slots_(page_slots) {}

  void add(const Span& span, std::int64_t slots) {
    const std::int64_t count = pages_for(span.first, slots, page_slots_);
    for (std::int64_t i = 0; i < count; ++i) {
      const Page& page = span.table->page(i);
      const auto [known, is_new] = numbers_.try_emplace(&page, static_cast<std::int64_t>(pages_.size()));
      if (is_new) pages_.push_back({page.data, {}});
      const std::int64_t begin = i == 0 ? span.first : 0;
      const std::int64_t end = std::min(page_slots_, span.first + slots - i * page_slots_);
      pages_[static_cast<std::size_t>(known->second)].live.push_back({begin, end});
      table_.push_back(known->second);
    }
  }

 private:
  std::vector<PlannedPage>& pages_;
  std::vector<std::int64_t>& table_;
  const std::int64_t page_slots_;
  std::unordered_map<const Page*, std::int64_t> numbers_;
};

}  // namespace

bool PlannedPage::all_live(std::int64_t page_slots) const {
  return std::any_of(live.begin(), live.end(), [&](SlotRange r) { return r.begin == 0 && r.end == page_slots; });
}

SavePlan SavePlan::make(const Store& store, std::span<const SavedSequence> sequences) {
  SavePlan plan;
  Numbering tokens(plan.token_pages, plan.token_table, store.layout.page_tokens);
  Numbering pooled(plan.pooled_pages, plan.pooled_table, store.layout.page_groups);
  for (const SavedSequence& saved : sequences) {
    const SequenceState& state = *saved.state;
    plan.sequences.insert(plan.sequences.end(),
                          {saved.id, state.run.anchor, state.run.tokens, state.tokens.first, state.groups.first});
    tokens.add(state.tokens, state.run.tokens);
    pooled.add(state.groups, store.layout.pooled_page_bytes == 0 ? 0 : store.geometry.index_keys(state.run.tokens));
  }
  return plan;
}

}  // namespace seriatim
