#include "shard/attend.hpp"

#include <algorithm>
#include <cstring>

#include "seriatim/attend.hpp"
#include "step/admission.hpp"
#include "step/batch.hpp"

namespace seriatim {
namespace {

// Partials that a rank may have to hold at once.
constexpr std::int64_t kBatchFloats = std::int64_t{1} << 23;

class ShardedAttend {
 public:
  ShardedAttend(std::span<const ShardedAttendAsk> asks, ConstRows rows, Tensor output, Tensor lse,
                AttendOptions options, Engine& engine, Group& group)
      : asks_(asks), rows_(rows), output_(output), lse_(lse), options_(options), engine_(engine), group_(group) {}

  // Everything that can be refused. Throws bad_alloc.
  Status prepare() {
    if (options_.result < -1 || options_.result >= group_.size()) {
      return Status::error(Code::kInvalidArgument, "result",
                           formatted("result: there is no rank {} of {}", options_.result, group_.size()));
    }
    if (Status s = make_whole(asks_, group_, whole_); !s.ok()) return s;
    if (asks_.empty()) return {};
    table_.reserve(static_cast<std::int64_t>(asks_.size()));
    const Status admitted = gets_result() ? admit_attend(whole_.asks, rows_, output_, lse_, table_)
                                          : admit_attend_asks(whole_.asks, rows_, table_);
    if (!admitted.ok()) return admitted;
    if (Status s = admit_rows({whole_.asks, table_, rows_, output_, lse_}, serial_executor()); !s.ok()) return s;
    if (!gets_result()) return {};
    outputs_.resize(static_cast<std::size_t>(table_.queries() * output_bytes()));
    if (!lse_.empty()) lses_.resize(static_cast<std::size_t>(table_.queries() * geometry().query_heads()));
    return {};
  }

  Call call() const {
    Digest layers;
    Digest positions;
    Digest queries;
    Digest rows;
    for (const ShardedAttendAsk& ask : asks_) {
      layers.add(*ask.layer);
      positions.add(ask.queries.positions);
      queries.add(ask.queries.queries);
      queries.add(ask.queries.sinks);
    }
    for (std::int64_t q = 0; q < table_.queries(); ++q) rows.add(rows_.row(q));
    Call call("attend");
    call.with("asks", static_cast<std::int64_t>(asks_.size())).with("result", options_.result);
    call.with("finish", static_cast<std::int64_t>(options_.finish));
    if (options_.result < 0)
      call.with("output", static_cast<std::int64_t>(output_.dtype)).with("lse", lse_.empty() ? 0 : 1);
    call.with("layers", layers.bytes()).with("positions", positions.bytes());
    return call.with("queries", queries.bytes()).with("rows", rows.bytes());
  }

  Status run() {
    if (table_.queries() == 0) return {};
    for (std::int64_t first = 0; first < table_.queries();) {
      const std::int64_t count = batch_queries(first);
      if (Status s = run_batch(first, count); !s.ok()) return s;
      first += count;
    }
    if (options_.result >= 0) {
      if (Status s = group_.transport().broadcast(options_.result, std::as_writable_bytes(std::span(overflow_)));
          !s.ok())
        return s;
    }
    if (gets_result()) write_results();
    if (overflow_[0] < 0) return {};
    return overflow_at({whole_.asks, table_, rows_, output_, lse_}, overflow_[0], overflow_[1]);
  }

 private:
  const Geometry& geometry() const { return *whole_.views.front().geometry; }
  bool gets_result() const { return options_.result < 0 || options_.result == group_.rank(); }
  std::int64_t output_bytes() const {
    return row_bytes(output_.dtype, geometry().query_heads() * geometry().value_dim());
  }

  // As many as keep the partials small, one at least.
  std::int64_t batch_queries(std::int64_t first) const {
    std::int64_t floats = 0;
    std::int64_t count = 0;
    while (first + count < table_.queries()) {
      const std::int64_t splits = (rows_.counts[first + count] + kSplitEntries - 1) / kSplitEntries;
      floats += splits * attend_partial_floats(geometry());
      if (count > 0 && floats > kBatchFloats) break;
      ++count;
    }
    return count;
  }

  AttendStep step_of(std::int64_t first, std::int64_t count) const {
    AttendStep step{asks_, {rows_.positions + first * rows_.stride, rows_.stride, rows_.counts + first}, {}, {}};
    for (std::int64_t q = first; q < first + count; ++q) {
      const AskTable::Place at = table_.of_query(q);
      step.spreads.push_back(spread_row(rows_.row(q), asks_[at.ask].layer->borders));
      if (step.ranges.empty() || step.ranges.back().ask != at.ask)
        step.ranges.push_back({at.ask, at.number, 0, q - first});
      ++step.ranges.back().count;
    }
    return step;
  }

  Status run_batch(std::int64_t first, std::int64_t count) {
    const AttendStep step = step_of(first, count);
    OwnPartials own;
    if (Status s = own_partials(step, engine_, group_, own); !s.ok()) return s;
    const FinishPlan plan = FinishPlan::make(step, group_.size(), options_);
    BatchResult result = result_of(first, count);
    if (Status s = finish_batch(step, plan, own, engine_, group_, result); !s.ok()) return s;
    std::int64_t found[2] = {result.overflow_query < 0 ? -1 : first + result.overflow_query, result.overflow_head};
    if (options_.result < 0) {
      if (Status s = deliver(plan.finisher, first, count, found); !s.ok()) return s;
    }
    if (overflow_[0] < 0) std::copy_n(found, 2, overflow_);
    return {};
  }

  std::span<std::byte> outputs_of(std::int64_t first, std::int64_t count) {
    return std::span(outputs_).subspan(static_cast<std::size_t>(first * output_bytes()),
                                       static_cast<std::size_t>(count * output_bytes()));
  }
  std::span<float> lses_of(std::int64_t first, std::int64_t count) {
    if (lses_.empty()) return {};
    return std::span(lses_).subspan(static_cast<std::size_t>(first * geometry().query_heads()),
                                    static_cast<std::size_t>(count * geometry().query_heads()));
  }

  BatchResult result_of(std::int64_t first, std::int64_t count) {
    BatchResult result;
    if (!gets_result()) return result;
    const std::int64_t heads = geometry().query_heads();
    result.output = dense_view(outputs_of(first, count).data(), output_.dtype, {count, heads, geometry().value_dim()});
    if (!lse_.empty()) result.lse = dense_view(lses_of(first, count).data(), DType::kF32, {count, heads});
    return result;
  }

  // One message: what overflowed, outputs, log-sum-exps.
  Status deliver(int from, std::int64_t first, std::int64_t count, std::int64_t (&found)[2]) {
    std::vector<std::byte> packet;
    put<std::int64_t>(packet, found);
    put<std::byte>(packet, outputs_of(first, count));
    put<float>(packet, lses_of(first, count));
    if (Status s = group_.transport().broadcast(from, packet); !s.ok()) return s;
    std::memcpy(found, packet.data(), sizeof found);
    const auto rest = std::span(packet).subspan(sizeof found);
    const auto outputs = outputs_of(first, count);
    std::ranges::copy(rest.first(outputs.size()), outputs.begin());
    std::ranges::copy(rest.subspan(outputs.size()), std::as_writable_bytes(lses_of(first, count)).begin());
    return {};
  }

  void write_results() {
    const std::int64_t dims = geometry().value_dim();
    const auto element = static_cast<std::size_t>(dtype_bytes(output_.dtype));
    for (std::int64_t q = 0; q < table_.queries(); ++q) {
      const std::byte* from = outputs_of(q, 1).data();
      for (std::int64_t h = 0; h < geometry().query_heads(); ++h) {
        for (std::int64_t i = 0; i < dims; ++i, from += element) std::memcpy(output_.at(q, h, i), from, element);
      }
      if (!lse_.empty()) std::ranges::copy(std::as_bytes(lses_of(q, 1)), lse_.at(q));
    }
  }

  std::span<const ShardedAttendAsk> asks_;
  const ConstRows rows_;
  const Tensor output_;
  const Tensor lse_;
  const AttendOptions options_;
  Engine& engine_;
  Group& group_;
  WholeAsks<AttendAsk> whole_;
  AskTable table_;
  std::vector<std::byte> outputs_;  // of all queries, dense
  std::vector<float> lses_;
  std::int64_t overflow_[2] = {-1, -1};  // query and head
};

}  // namespace

Status ShardedEngine::Impl::attend(std::span<const ShardedAttendAsk> asks, ConstRows rows, Tensor output, Tensor lse,
                                   AttendOptions options) {
  ShardedAttend attend(asks, rows, output, lse, options, engine, group);
  Call call("attend");
  const Status mine = without_throwing("asks", [&]() -> Status {
    if (Status s = attend.prepare(); !s.ok()) return s;
    call = attend.call();
    return {};
  });
  if (Status s = group.agree(call, mine); !s.ok()) return s;
  const Status done = without_throwing("attend", [&] { return attend.run(); });
  // An overflow is known after the last message; any other error may be one before it.
  return done.ok() || done.code() == Code::kOverflow ? done : group.leave(done);
}

}  // namespace seriatim
