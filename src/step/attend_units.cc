#include "step/attend_units.hpp"

#include <algorithm>
#include <array>

#include "attend/row_union.hpp"
#include "step/attend_scratch.hpp"

namespace seriatim {
namespace {

void note_overflow(const AttendBatch& batch, std::int64_t query, const BlockQuery& done, FirstFault& overflow) {
  if (done.overflow >= 0) overflow.note(query * batch.layer.geometry->query_heads() + done.overflow);
}

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

// A unit is a block of neighbouring queries and one kv head.
class BlockTask final : public Task {
 public:
  BlockTask(const AttendBatch& batch, Workspace::Impl& work)
      : batch_(batch),
        work_(work),
        kernels_(attend_kernels(work.kernels)),
        kv_heads_(batch.layer.geometry->kv_heads()) {
    // Blocks small enough to give every worker two units.
    const std::int64_t spread = batch.count() * kv_heads_ / (2 * work.executor->concurrency());
    block_ = std::clamp<std::int64_t>(spread, 1, block_queries(*batch.layer.geometry));
  }

  std::int64_t units() const { return (batch_.count() + block_ - 1) / block_ * kv_heads_; }

  void perform(std::int64_t unit, int worker) override {
    const std::int64_t first = unit / kv_heads_ * block_;
    const std::int64_t count = std::min(block_, batch_.count() - first);
    std::array<std::span<const std::int32_t>, kMostBlockQueries> rows;
    for (std::int64_t i = 0; i < count; ++i) rows[static_cast<std::size_t>(i)] = batch_.rows.row(first + i);
    if (count > 1 && !work_.kernels.is_reference() && worth_sharing({rows.data(), static_cast<std::size_t>(count)})) {
      return attend(first, count, unit % kv_heads_, worker);
    }
    for (std::int64_t i = 0; i < count; ++i) attend(first + i, 1, unit % kv_heads_, worker);
  }

  const FirstFault& overflow() const { return overflow_; }

 private:
  void attend(std::int64_t first, std::int64_t count, std::int64_t kv_head, int worker) {
    std::array<BlockQuery, kMostBlockQueries> queries;
    for (std::int64_t i = 0; i < count; ++i) queries[static_cast<std::size_t>(i)] = batch_.query(first + i);
    float* scratch = work_.workers[static_cast<std::size_t>(worker)].attend.data();
    kernels_.attend_block(
        {&batch_.layer, kv_head, {queries.data(), static_cast<std::size_t>(count)}, batch_.queries.sinks, scratch});
    for (std::int64_t i = 0; i < count; ++i)
      note_overflow(batch_, first + i, queries[static_cast<std::size_t>(i)], overflow_);
  }

  const AttendBatch& batch_;
  Workspace::Impl& work_;
  const AttendKernels& kernels_;
  const std::int64_t kv_heads_;
  std::int64_t block_;
  FirstFault overflow_;
};

// Whether pairs of a query and a kv head are too few, or too uneven, to keep every worker busy.
bool too_few_pairs(const AttendBatch& batch, const Workspace::Impl& work) {
  const std::int64_t concurrency = work.executor->concurrency();
  const std::int64_t pairs = batch.count() * batch.layer.geometry->kv_heads();
  return concurrency > 1 && pairs < kFewPairsPerWorker * concurrency && pairs % concurrency != 0 &&
         attend_kernels(work.kernels).reduce_splits != nullptr;
}

// For few pairs that have many query heads: a unit is some heads of one pair. Each reads the whole row, which then lies
// in a shared cache, and there is nothing to fold.
class HeadTask final : public Task {
 public:
  HeadTask(const AttendBatch& batch, Workspace::Impl& work)
      : batch_(batch), work_(work), parts_(work.executor->concurrency()) {}

  static bool serves(const AttendBatch& batch, const Workspace::Impl& work) {
    return too_few_pairs(batch, work) &&
           batch.layer.geometry->heads_per_kv() >= kFewestHeads * work.executor->concurrency();
  }

  std::int64_t units() const { return batch_.count() * batch_.layer.geometry->kv_heads() * parts_; }

  void perform(std::int64_t unit, int worker) override {
    const Geometry& geometry = *batch_.layer.geometry;
    const std::int64_t pair = unit / parts_;
    const std::int64_t query = pair / geometry.kv_heads();
    const HeadPart part = part_of_heads(geometry, unit % parts_, parts_);
    BlockQuery one = batch_.query(query);
    float* scratch = work_.workers[static_cast<std::size_t>(worker)].attend.data();
    attend_kernels(work_.kernels)
        .attend_block({&batch_.layer,
                       pair % geometry.kv_heads(),
                       {&one, 1},
                       batch_.queries.sinks,
                       scratch,
                       part.first,
                       part.heads});
    note_overflow(batch_, query, one, overflow_);
  }

  const FirstFault& overflow() const { return overflow_; }

 private:
  // Of a unit: below that, widening the keys costs too much.
  static constexpr std::int64_t kFewestHeads = 2 * kHeadUnit;

  const AttendBatch& batch_;
  Workspace::Impl& work_;
  const std::int64_t parts_;
  FirstFault overflow_;
};

// For few pairs otherwise: rounds in which a unit first reduces some splits, then folds some heads of one pair.
class SplitTask final : public Task {
 public:
  SplitTask(const AttendBatch& batch, Workspace::Impl& work)
      : batch_(batch),
        work_(work),
        kernels_(attend_kernels(work.kernels)),
        kv_heads_(batch.layer.geometry->kv_heads()),
        pairs_(batch.count() * kv_heads_),
        fold_parts_(std::clamp<std::int64_t>(batch.layer.geometry->heads_per_kv() / kHeadUnit, 1,
                                             work.executor->concurrency())),
        partial_floats_(attend_partial_floats(*batch.layer.geometry)),
        totals_(work.attend_splits.data()),
        partials_(totals_ + kFewPairsPerWorker * work.executor->concurrency() * partial_floats_) {}

  static bool serves(const AttendBatch& batch, const Workspace::Impl& work) {
    if (!too_few_pairs(batch, work)) return false;
    for (std::int64_t q = 0; q < batch.count(); ++q) {
      if (batch.rows.counts[q] == 0) return false;
    }
    return true;
  }

  void run_all() {
    std::int64_t all = 0;
    for (std::int64_t pair = 0; pair < pairs_; ++pair) all += splits(pair);
    const std::int64_t most = kOpenSplitsPerWorker * work_.executor->concurrency();
    const std::int64_t rounds = (all + most - 1) / most;
    for (std::int64_t round = 0; round < rounds; ++round) {
      begin_ = round * all / rounds;
      end_ = (round + 1) * all / rounds;
      units_ = std::min<std::int64_t>(end_ - begin_, 2 * work_.executor->concurrency());
      folding_ = false;
      work_.executor->run(units_, *this);
      folding_ = true;
      work_.executor->run(pairs_ * fold_parts_, *this);
    }
  }

  void perform(std::int64_t unit, int worker) override {
    if (folding_) {
      const HeadPart part = part_of_heads(*batch_.layer.geometry, unit % fold_parts_, fold_parts_);
      const std::int64_t folded = unit / fold_parts_;
      return for_pairs(
          begin_, end_, folded, folded + 1,
          [&](AttendBlock& one, std::int64_t pair, std::int64_t first, std::int64_t count, float* partials) {
            one.first_head = part.first;
            one.heads = part.heads;
            kernels_.fold_splits(one, first, count, partials, totals_ + pair * partial_floats_);
            note_overflow(batch_, pair / kv_heads_, one.queries[0], overflow_);
          },
          worker);
    }
    const std::int64_t many = end_ - begin_;
    for_pairs(
        begin_ + unit * many / units_, begin_ + (unit + 1) * many / units_, 0, pairs_,
        [&](const AttendBlock& one, std::int64_t, std::int64_t first, std::int64_t count, float* partials) {
          kernels_.reduce_splits(one, first, count, partials);
        },
        worker);
  }

  const FirstFault& overflow() const { return overflow_; }

 private:
  std::int64_t splits(std::int64_t pair) const {
    return (batch_.rows.counts[pair / kv_heads_] + kSplitEntries - 1) / kSplitEntries;
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
      BlockQuery query = batch_.query(pair / kv_heads_);
      AttendBlock one{&batch_.layer,
                      pair % kv_heads_,
                      {&query, 1},
                      batch_.queries.sinks,
                      work_.workers[static_cast<std::size_t>(worker)].attend.data()};
      call(one, pair, from - base, to - from, partials_ + (from - begin_) * partial_floats_);
    }
  }

  const AttendBatch& batch_;
  Workspace::Impl& work_;
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

BlockQuery AttendBatch::query(std::int64_t q) const {
  BlockQuery one{row_of(queries.queries, q), rows.row(q), row_of(output, q), {}, -1};
  if (!lse.empty())
    one.lse = {reinterpret_cast<float*>(lse.at(q)), static_cast<std::size_t>(layer.geometry->query_heads())};
  return one;
}

std::int64_t attend_batch(const AttendBatch& batch, Workspace::Impl& work) {
  if (HeadTask::serves(batch, work)) {
    HeadTask task(batch, work);
    work.executor->run(task.units(), task);
    return task.overflow().place();
  }
  if (SplitTask::serves(batch, work)) {
    SplitTask task(batch, work);
    task.run_all();
    return task.overflow().place();
  }
  BlockTask task(batch, work);
  work.executor->run(task.units(), task);
  return task.overflow().place();
}

}  // namespace seriatim
