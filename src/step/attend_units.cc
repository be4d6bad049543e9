#include "step/attend_units.hpp"

#include <algorithm>
#include <array>

#include "attend/attend_kernels.hpp"
#include "attend/row_union.hpp"
#include "step/attend_scratch.hpp"

namespace seriatim {
namespace {

void note_overflow(const AttendBatch& batch, std::int64_t query, const BlockQuery& done, FirstFault& overflow) {
  if (done.overflow >= 0) overflow.note(query * batch.geometry().query_heads() + done.overflow);
}

// `query` of all asks' queries, which is the ask's `number`th, as a kv head sees it.
BlockQuery block_query(const AttendBatch& batch, const AttendAsk& ask, std::int64_t number, std::int64_t query,
                       std::int64_t kv_head) {
  const std::int64_t row = batch.row_of(query, kv_head);
  BlockQuery one{row_of(ask.queries.queries, number), batch.rows.row(row), row_of(batch.output, query), {}, -1,
                 batch.rows.row_biases(row)};
  if (!batch.lse.empty()) {
    one.lse = {reinterpret_cast<float*>(batch.lse.at(query)), static_cast<std::size_t>(batch.geometry().query_heads())};
  }
  return one;
}

// One query alone, and whose it is.
struct OneQuery {
  OneQuery(const AttendBatch& batch, std::int64_t number, std::int64_t head)
      : OneQuery(batch, number, head, batch.table.of_query(number)) {}
  AttendBlock block(WorkerScratch& scratch) {
    return {ask.layer, kv_head, {&query, 1}, ask.queries.sinks, scratch.attend.data()};
  }

  const AttendAsk& ask;
  const std::int64_t kv_head;
  BlockQuery query;

 private:
  OneQuery(const AttendBatch& batch, std::int64_t number, std::int64_t head, AskTable::Place place)
      : ask(batch.asks[place.ask]), kv_head(head), query(block_query(batch, ask, place.number, number, head)) {}
};

struct HeadPart {
  std::int64_t first = 0;
  std::int64_t heads = 0;
};

// Part `part` of `parts` of a kv head's query heads, cut at multiples of kHeadUnit; there are no more parts than
// multiples.
HeadPart part_of_heads(const Geometry& geometry, std::int64_t part, std::int64_t parts) {
  const std::int64_t heads = geometry.heads_per_kv();
  const std::int64_t units = (heads + kHeadUnit - 1) / kHeadUnit;
  const std::int64_t first = part * units / parts * kHeadUnit;
  return {first, std::min((part + 1) * units / parts * kHeadUnit, heads) - first};
}

// A unit is a block of neighbouring queries of one ask and one kv head.
class BlockTask final : public Task {
 public:
  BlockTask(const AttendBatch& batch, HostScratch& work)
      : batch_(batch),
        work_(work),
        kernels_(attend_kernels(work.kernels)),
        kv_heads_(batch.geometry().kv_heads()),
        // Blocks small enough to give every worker two units.
        block_(std::clamp<std::int64_t>(batch.table.queries() * kv_heads_ / (2 * work.concurrency()), 1,
                                        block_queries(batch.geometry()))) {
    batch.table.cut([this](const AskPart&) { return block_; });
  }

  std::int64_t units() const { return batch_.table.blocks() * kv_heads_; }

  void perform(std::int64_t unit, int worker) override {
    const AskTable::Place place = batch_.table.of_block(unit / kv_heads_);
    const AskPart& part = batch_.table[place.ask];
    const std::int64_t kv_head = unit % kv_heads_;
    const std::int64_t first = place.number * block_;
    const std::int64_t count = std::min(block_, part.queries - first);
    std::array<std::span<const std::int32_t>, kMostBlockQueries> rows;
    for (std::int64_t i = 0; i < count; ++i)
      rows[static_cast<std::size_t>(i)] = batch_.rows.row(batch_.row_of(part.first_query + first + i, kv_head));
    const bool together =
        count > 1 && !work_.kernels.is_reference() && worth_sharing({rows.data(), static_cast<std::size_t>(count)});
    const std::int64_t at_once = together ? count : 1;
    for (std::int64_t i = 0; i < count; i += at_once) attend(place.ask, first + i, at_once, kv_head, worker);
  }

  const FirstFault& overflow() const { return overflow_; }

 private:
  void attend(std::size_t number, std::int64_t first, std::int64_t count, std::int64_t kv_head, int worker) {
    const AttendAsk& ask = batch_.asks[number];
    const std::int64_t query = batch_.table[number].first_query + first;
    std::array<BlockQuery, kMostBlockQueries> queries;
    for (std::int64_t i = 0; i < count; ++i)
      queries[static_cast<std::size_t>(i)] = block_query(batch_, ask, first + i, query + i, kv_head);
    float* scratch = work_.workers[static_cast<std::size_t>(worker)].attend.data();
    kernels_.attend_block(
        {ask.layer, kv_head, {queries.data(), static_cast<std::size_t>(count)}, ask.queries.sinks, scratch});
    for (std::int64_t i = 0; i < count; ++i)
      note_overflow(batch_, query + i, queries[static_cast<std::size_t>(i)], overflow_);
  }

  const AttendBatch& batch_;
  HostScratch& work_;
  const AttendKernels& kernels_;
  const std::int64_t kv_heads_;
  const std::int64_t block_;
  FirstFault overflow_;
};

// Whether waking other workers would take longer than the work.
bool is_small(const AttendBatch& batch) {
  constexpr std::int64_t kSmallFlops = std::int64_t{1} << 20;  // some microseconds
  std::int64_t entries = 0;
  const Geometry& geometry = batch.geometry();
  for (std::int64_t row = 0; row < batch.table.queries() * geometry.selections(); ++row)
    entries += batch.rows.counts[row];
  return 2 * entries * (geometry.query_heads() / geometry.selections()) * (geometry.head_dim() + geometry.value_dim()) <
         kSmallFlops;
}

// Whether pairs of a query and a kv head are too few, or too uneven, to keep every worker busy.
bool too_few_pairs(const AttendBatch& batch, const HostScratch& work) {
  const std::int64_t concurrency = work.concurrency();
  const std::int64_t pairs = batch.table.queries() * batch.geometry().kv_heads();
  return concurrency > 1 && pairs < kFewPairsPerWorker * concurrency && pairs % concurrency != 0 &&
         attend_kernels(work.kernels).reduces_splits();
}

// For few pairs that have many query heads: a unit is some heads of one pair. Each reads the whole row, which then lies
// in a shared cache, and there is nothing to fold.
class HeadTask final : public Task {
 public:
  HeadTask(const AttendBatch& batch, HostScratch& work) : batch_(batch), work_(work), parts_(work.concurrency()) {}

  static bool serves(const AttendBatch& batch, const HostScratch& work) {
    return too_few_pairs(batch, work) && batch.geometry().heads_per_kv() >= kFewestHeads * work.concurrency();
  }

  std::int64_t units() const { return batch_.table.queries() * batch_.geometry().kv_heads() * parts_; }

  void perform(std::int64_t unit, int worker) override {
    const Geometry& geometry = batch_.geometry();
    const std::int64_t pair = unit / parts_;
    const std::int64_t query = pair / geometry.kv_heads();
    const HeadPart part = part_of_heads(geometry, unit % parts_, parts_);
    OneQuery one(batch_, query, pair % geometry.kv_heads());
    AttendBlock block = one.block(work_.workers[static_cast<std::size_t>(worker)]);
    block.first_head = part.first;
    block.heads = part.heads;
    attend_kernels(work_.kernels).attend_block(block);
    note_overflow(batch_, query, one.query, overflow_);
  }

  const FirstFault& overflow() const { return overflow_; }

 private:
  // Of a unit: below that, widening the keys costs too much.
  static constexpr std::int64_t kFewestHeads = 2 * kHeadUnit;

  const AttendBatch& batch_;
  HostScratch& work_;
  const std::int64_t parts_;
  FirstFault overflow_;
};

// For few pairs otherwise: rounds in which a unit first reduces some splits, then folds some heads of one pair.
class SplitTask final : public Task {
 public:
  SplitTask(const AttendBatch& batch, HostScratch& work)
      : batch_(batch),
        work_(work),
        kernels_(attend_kernels(work.kernels)),
        kv_heads_(batch.geometry().kv_heads()),
        pairs_(batch.table.queries() * kv_heads_),
        fold_parts_(std::clamp<std::int64_t>(batch.geometry().heads_per_kv() / kHeadUnit, 1, work.concurrency())),
        partial_floats_(kernel_partial_floats(batch.geometry())),
        totals_(work.attend_splits.data()),
        partials_(totals_ + kFewPairsPerWorker * work.concurrency() * partial_floats_) {}

  static bool serves(const AttendBatch& batch, const HostScratch& work) {
    if (!too_few_pairs(batch, work)) return false;
    for (std::int64_t row = 0; row < batch.table.queries() * batch.geometry().selections(); ++row) {
      if (batch.rows.counts[row] == 0) return false;
    }
    return true;
  }

  void run_all() {
    std::int64_t all = 0;
    for (std::int64_t pair = 0; pair < pairs_; ++pair) all += splits(pair);
    const std::int64_t most = kOpenSplitsPerWorker * work_.concurrency();
    const std::int64_t rounds = (all + most - 1) / most;
    for (std::int64_t round = 0; round < rounds; ++round) {
      begin_ = round * all / rounds;
      end_ = (round + 1) * all / rounds;
      units_ = std::min<std::int64_t>(end_ - begin_, 2 * work_.concurrency());
      folding_ = false;
      work_.executor.run(units_, *this);
      folding_ = true;
      work_.executor.run(pairs_ * fold_parts_, *this);
    }
  }

  void perform(std::int64_t unit, int worker) override {
    if (folding_) {
      const HeadPart part = part_of_heads(batch_.geometry(), unit % fold_parts_, fold_parts_);
      const std::int64_t folded = unit / fold_parts_;
      return for_pairs(
          begin_, end_, folded, folded + 1,
          [&](AttendBlock& block, std::int64_t pair, std::int64_t first, std::int64_t count, float* partials) {
            block.first_head = part.first;
            block.heads = part.heads;
            kernels_.fold_splits(block, first, count, partials, totals_ + pair * partial_floats_);
            note_overflow(batch_, pair / kv_heads_, block.queries[0], overflow_);
          },
          worker);
    }
    const std::int64_t many = end_ - begin_;
    for_pairs(
        begin_ + unit * many / units_, begin_ + (unit + 1) * many / units_, 0, pairs_,
        [&](const AttendBlock& block, std::int64_t, std::int64_t first, std::int64_t count, float* partials) {
          kernels_.reduce_splits(block, first, count, partials);
        },
        worker);
  }

  const FirstFault& overflow() const { return overflow_; }

 private:
  std::int64_t splits(std::int64_t pair) const {
    return (batch_.rows.counts[batch_.row_of(pair / kv_heads_, pair % kv_heads_)] + kSplitEntries - 1) / kSplitEntries;
  }

  // All pairs' splits are numbered through. Calls call(block, pair, first, count, partials) for what lies in
  // [begin, end) of pairs [first_pair, last_pair).
  template <typename Call>
  void for_pairs(std::int64_t begin, std::int64_t end, std::int64_t first_pair, std::int64_t last_pair, Call&& call,
                 int worker) {
    std::int64_t base = 0;
    for (std::int64_t pair = 0; pair < last_pair; base += splits(pair), ++pair) {
      const std::int64_t from = std::max(begin, base);
      const std::int64_t to = std::min(end, base + splits(pair));
      if (pair < first_pair || from >= to) continue;
      OneQuery one(batch_, pair / kv_heads_, pair % kv_heads_);
      AttendBlock block = one.block(work_.workers[static_cast<std::size_t>(worker)]);
      call(block, pair, from - base, to - from, partials_ + (from - begin_) * partial_floats_);
    }
  }

  const AttendBatch& batch_;
  HostScratch& work_;
  const AttendKernels& kernels_;
  const std::int64_t kv_heads_;
  const std::int64_t pairs_;
  const std::int64_t fold_parts_;  // of a pair's heads
  const std::int64_t partial_floats_;
  float* const totals_;
  float* const partials_;
  std::int64_t begin_ = 0;  // the round's splits
  std::int64_t end_ = 0;
  std::int64_t units_ = 0;
  bool folding_ = false;
  FirstFault overflow_;
};

}  // namespace

std::int64_t attend_batch(const AttendBatch& batch, HostScratch& work) {
  if (HeadTask::serves(batch, work)) {
    HeadTask task(batch, work);
    work.executor.run(task.units(), task);
    return task.overflow().place();
  }
  if (SplitTask::serves(batch, work)) {
    SplitTask task(batch, work);
    task.run_all();
    return task.overflow().place();
  }
  BlockTask task(batch, work);
  if (is_small(batch)) {
    for (std::int64_t unit = 0; unit < task.units(); ++unit) task.run(unit, 0);
  } else {
    work.executor.run(task.units(), task);
  }
  return task.overflow().place();
}

}  // namespace seriatim
