#include "agreement/answer.hpp"

#include <cstring>
#include <numeric>
#include <optional>

#include "agreement/borrowed_side.hpp"
#include "agreement/device_side.hpp"
#include "agreement/kernel_access.hpp"
#include "agreement/sharded_side.hpp"
#include "base/format.hpp"
#include "seriatim/cache.hpp"
#include "seriatim/step.hpp"

namespace seriatim::agreement {
namespace {

using testing::Foreign;
using testing::ForeignFloatEnvironment;

ConstTensor or_nothing(const HostTensor& tensor) { return tensor.elements() > 0 ? tensor.view() : ConstTensor{}; }

// Some rows of a tensor, one after another.
HostTensor pick(const HostTensor& from, const std::vector<std::int64_t>& rows) {
  if (from.elements() == 0) return {};
  const ConstTensor view = from.view();
  const auto count = static_cast<std::int64_t>(rows.size());
  HostTensor picked = view.rank == 2 ? HostTensor(from.dtype(), {count, view.shape[1]})
                                     : HostTensor(from.dtype(), {count, view.shape[1], view.shape[2]});
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(picked.writable().at(i), view.at(rows[static_cast<std::size_t>(i)]),
                static_cast<std::size_t>(view.stride_bytes[0]));
  }
  return picked;
}

ConstTensor slice(ConstTensor tensor, std::int64_t first, std::int64_t count) {
  if (tensor.empty()) return tensor;
  tensor.data = tensor.at(first);
  tensor.shape[0] = count;
  return tensor;
}

std::span<const std::int64_t> slice(std::span<const std::int64_t> positions, std::int64_t first, std::int64_t count) {
  return positions.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

IndexQueries slice(const IndexQueries& of, std::int64_t first, std::int64_t count) {
  return {slice(of.queries, first, count), slice(of.head_weights, first, count), slice(of.positions, first, count)};
}

AttendQueries slice(const AttendQueries& of, std::int64_t first, std::int64_t count) {
  return {slice(of.queries, first, count), slice(of.positions, first, count), of.sinks};
}

// One problem in one way.
class Run {
 public:
  Run(const Problem& problem, const Way& way) : p_(problem), g_(problem.geometry), way_(way), executor_(way.executor) {
    rows_.assign(queries() * static_cast<std::size_t>(g_.row_capacity()), 0);
    counts_.assign(queries(), -1);
    scores_.resize(queries());
    output_ = HostTensor(p_.output_dtype, {p_.count(), g_.query_heads(), g_.value_dim()});
    lse_ = HostTensor(DType::kF32, {p_.count(), g_.query_heads()});
  }

  Result<Answer> result() {
    if (Status s = prepare(); !s.ok()) return s;
    const std::int64_t chunk = way_.chunk == 0 ? p_.tokens() : way_.chunk;
    for (std::int64_t first = 0; first < p_.tokens(); first += chunk) {
      if (Status s = step(first, std::min(chunk, p_.tokens() - first)); !s.ok()) return s;
    }
    return collect();
  }

 private:
  // A call of the library, made on a thread that other software left in way_.foreign.
  template <typename Call>
  auto in_foreign(const Call& call) {
    if (way_.foreign == Foreign::kNone || way_.pool == Pool::kAfter) return call();
    ForeignFloatEnvironment environment(way_.foreign);
    auto result = call();
    touched_ = touched_ || !environment.untouched();
    return result;
  }

  void make_executor_in_foreign() {
    ForeignFloatEnvironment environment(way_.foreign);
    made_ = make_executor(way_.threads);
    executor_ = made_.get();
  }

  std::size_t queries() const { return p_.positions.size(); }

  Status prepare() {
    if (way_.pool != Pool::kBefore) make_executor_in_foreign();
    CacheOptions options;
    options.layers[0].index_norm_weight = p_.norm_weight;
    options.capacity_tokens = p_.tokens() + 64 * 16 * g_.group_tokens();
    options.index_only = way_.memory != Memory::kCache;
    if (options.index_only) borrowed_.emplace(p_, way_.memory);
    if (!way_.device.backend.empty()) {
      auto side = in_foreign([&] { return make_device_side(way_.device, p_); });
      if (!side.ok()) return side.status();
      device_ = *std::move(side);
      options.allocator = &device_->allocator();
    }
    if (way_.chunk != 0) options.page_tokens = 16 * g_.group_tokens();  // other pages besides
    auto cache = Cache::create(g_, std::move(options));
    if (!cache.ok()) return cache.status();
    cache_ = *std::move(cache);
    const auto sequence = cache_->add(p_.anchor);
    if (!sequence.ok()) return sequence.status();
    sequence_ = *sequence;
    auto engine = Engine::host(*executor_, way_.kernels, way_.screening);
    if (!engine.ok()) return engine.status();
    engine_.emplace(*std::move(engine));
    if (Status s = engine_->reserve(g_, {p_.tokens(), 2 * p_.count(), 2 * p_.count()}); !s.ok()) return s;
    return check_kernels(way_.kernels);
  }

  // Appends some tokens and asks the queries among them while the tokens are staged.
  Status step(std::int64_t first, std::int64_t tokens) {
    auto transaction = cache_->begin();
    if (!transaction.ok()) return transaction.status();
    TokenBatch batch;
    batch.first_position = p_.anchor + first;
    if (!borrowed_) batch.keys = p_.keys.rows(first, tokens);
    if (!borrowed_ && !g_.values_alias_keys()) batch.values = p_.values.rows(first, tokens);
    batch.index_keys = p_.index_keys.rows(first, tokens);
    if (!p_.coordinates.empty()) batch.coordinates = p_.coordinates.data() + first;
    if (Status s = in_foreign([&] { return transaction->append(sequence_, 0, batch); }); !s.ok()) return s;
    std::vector<std::int64_t> asked;
    for (; next_ < p_.count() && p_.positions[static_cast<std::size_t>(next_)] < p_.anchor + first + tokens; ++next_)
      asked.push_back(next_);
    if (!asked.empty()) {
      const auto layer = transaction->layer(sequence_, 0);
      if (!layer.ok()) return layer.status();
      if (device_ != nullptr) {
        if (Status s = in_foreign([&] { return device_->stage(*layer); }); !s.ok()) return s;
      }
      const auto asked_layer = borrowed_ ? borrowed_->view(*layer) : layer;
      if (!asked_layer.ok()) return asked_layer.status();
      if (Status s = ask_in_batches(*asked_layer, asked); !s.ok()) return s;
    }
    return transaction->commit();
  }

  Status ask_in_batches(const LayerView& layer, const std::vector<std::int64_t>& asked) {
    if (way_.batch == Batch::kTogether) return ask(layer, asked);
    if (way_.batch == Batch::kAlone) {
      for (const std::int64_t query : asked) {
        if (Status s = ask(layer, {query}); !s.ok()) return s;
      }
      return {};
    }
    std::vector<std::int64_t> order;
    for (std::size_t i = asked.size(); i-- > 0;) order.insert(order.end(), {asked[i], asked[i * 7 % asked.size()]});
    return ask(layer, order);
  }

  // Plans, scores and attends for `asked` in one call and keeps the answers.
  Status ask(const LayerView& layer, const std::vector<std::int64_t>& asked) {
    const auto count = static_cast<std::int64_t>(asked.size());
    std::vector<std::int64_t> positions;
    for (const std::int64_t query : asked) positions.push_back(p_.positions[static_cast<std::size_t>(query)]);
    const HostTensor index_queries = pick(p_.index_queries, asked);
    const HostTensor head_weights = pick(p_.head_weights, asked);
    const HostTensor attending = pick(p_.queries, asked);

    std::vector<std::int32_t> positions_of_rows(asked.size() * static_cast<std::size_t>(g_.row_capacity()));
    std::vector<std::int32_t> counts(asked.size());
    const Rows rows{positions_of_rows.data(), g_.row_capacity(), counts.data()};
    const IndexQueries index{index_queries.view(), or_nothing(head_weights), positions};
    const AttendQueries queries{attending.view(), positions, p_.sinks};

    HostTensor output(p_.output_dtype, {count, g_.query_heads(), g_.value_dim()});
    HostTensor lse(DType::kF32, {count, g_.query_heads()});
    std::vector<std::vector<float>> scores;
    if (device_ != nullptr) {
      const auto asking = [&] { return device_->ask(index, queries, rows, output.writable(), lse.writable()); };
      if (Status s = in_foreign(asking); !s.ok()) return s;
      auto all = device_->scores(index);
      if (!all.ok()) return all.status();
      scores = *std::move(all);
    } else {
      const std::int64_t each = way_.batch == Batch::kAsks ? 1 : count;
      std::vector<PlanAsk> plans;
      std::vector<AttendAsk> attends;
      for (std::int64_t first = 0; first < count; first += each) {
        plans.push_back({&layer, slice(index, first, each)});
        attends.push_back({&layer, slice(queries, first, each)});
      }
      const auto planning = [&] { return engine_->plan(plans, NanPolicy::kRefuse, rows); };
      if (Status s = in_foreign(planning); !s.ok()) return s;
      const auto attending_rows = [&] { return engine_->attend(attends, rows, output.writable(), lse.writable()); };
      if (Status s = in_foreign(attending_rows); !s.ok()) return s;
      scores = score_all(way_.kernels, layer, index_queries.view(), or_nothing(head_weights), positions);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      if (Status s =
              keep(asked[static_cast<std::size_t>(i)], rows, i, scores[static_cast<std::size_t>(i)], output, lse);
          !s.ok())
        return s;
    }
    return {};
  }

  // Writes the answer of place `from` of a batch to `query`, or compares where there is one already.
  Status keep(std::int64_t query, const Rows& rows, std::int64_t from, const std::vector<float>& scores,
              const HostTensor& output, const HostTensor& lse) {
    const auto at = static_cast<std::size_t>(query);
    const bool again = counts_[at] >= 0;
    bool same = true;
    const auto put = [&](void* to, const void* source, std::int64_t bytes) {
      const auto size = static_cast<std::size_t>(bytes);
      if (size == 0) return;
      if (again) {
        same = same && std::memcmp(to, source, size) == 0;
      } else {
        std::memcpy(to, source, size);
      }
    };
    put(&counts_[at], rows.counts + from, 4);
    put(rows_.data() + query * g_.row_capacity(), rows.positions + from * rows.stride, g_.row_capacity() * 4);
    put(output_.writable().at(query), output.view().at(from), output.view().stride_bytes[0]);
    put(lse_.writable().at(query), lse.view().at(from), lse.view().stride_bytes[0]);
    if (!again) scores_[at] = scores;
    put(scores_[at].data(), scores.data(), static_cast<std::int64_t>(scores.size()) * 4);
    if (same) return {};
    return Status::error(Code::kCorrupt, "batch", formatted("batch: query {} has two answers in one batch", query),
                         {query, -1});
  }

  Result<Answer> collect() {
    if (touched_) {
      return Status::error(Code::kCorrupt, "environment",
                           "environment: a call changed the floating-point modes or flags of its thread");
    }
    const auto snapshot = cache_->snapshot(sequence_);
    if (!snapshot.ok()) return snapshot.status();
    Answer all;
    const auto add = [&](Part part, std::span<const std::byte> bytes, std::int64_t element_bytes) {
      auto& to = all.parts[static_cast<std::size_t>(part)];
      to.insert(to.end(), bytes.begin(), bytes.end());
      all.values[static_cast<std::size_t>(part)] += static_cast<std::int64_t>(bytes.size()) / element_bytes;
    };
    const LayerView layer = snapshot->layer(0);
    const std::int64_t element = dtype_bytes(layer.pooled.dtype);
    if (device_ != nullptr) {
      const auto pooled = device_->pooled(*snapshot);
      if (!pooled.ok()) return pooled.status();
      add(Part::kPooled, *pooled, element);
    }
    for (std::int64_t group = 0; device_ == nullptr && group < layer.pooled.groups; ++group) {
      for (std::int64_t i = 0; i < layer.pooled.dim; ++i) {
        add(Part::kPooled,
            {layer.pooled.group(group) + i * PooledKeys::kPanelGroups * element, static_cast<std::size_t>(element)},
            element);
      }
    }
    for (const auto& scores : scores_) add(Part::kScores, std::as_bytes(std::span(scores)), 4);
    add(Part::kRows, std::as_bytes(std::span(rows_)), 4);
    add(Part::kRows, std::as_bytes(std::span(counts_)), 4);
    add(Part::kOutput, output_.bytes(), dtype_bytes(p_.output_dtype));
    add(Part::kLse, lse_.bytes(), 4);
    for (std::size_t q = 0; q < queries(); ++q) all.sparse_rows += counts_[q] < p_.positions[q] - p_.anchor + 1 ? 1 : 0;
    return all;
  }

  const Problem& p_;
  const Geometry& g_;
  const Way& way_;
  std::unique_ptr<Executor> made_;  // by this run
  Executor* executor_;
  bool touched_ = false;
  std::unique_ptr<DeviceSide> device_;    // null: the host computes
  std::optional<BorrowedSide> borrowed_;  // none: the cache keeps keys and values
  std::unique_ptr<Cache> cache_;
  SequenceId sequence_ = 0;
  std::optional<Engine> engine_;
  std::int64_t next_ = 0;  // the first query that was not asked yet
  std::vector<std::int32_t> rows_;
  std::vector<std::int32_t> counts_;  // -1: not asked yet
  std::vector<std::vector<float>> scores_;
  HostTensor output_;
  HostTensor lse_;
};

}  // namespace

const char* part_name(Part part) {
  switch (part) {
    case Part::kPooled:
      return "pooled";
    case Part::kScores:
      return "scores";
    case Part::kRows:
      return "rows";
    case Part::kOutput:
      return "output";
    case Part::kLse:
      return "lse";
  }
  return "";
}

std::string Way::name() const {
  std::string name = !device.backend.empty()
                         ? formatted("{}, work-groups of {}", device.backend, device.work_group)
                         : formatted("{}, {} thread{}", kernels.name(), threads, threads == 1 ? "" : "s");
  if (batch == Batch::kAlone) name += ", each query alone";
  if (batch == Batch::kNeighbours) name += ", among neighbours";
  if (batch == Batch::kAsks) name += ", an ask each among neighbours";
  if (memory == Memory::kArray) name += ", borrowed arrays";
  if (memory == Memory::kPages) name += ", borrowed pages";
  if (foreign != Foreign::kNone) {
    name += formatted(", {} in the process", testing::foreign_name(foreign));
    if (pool == Pool::kDuring) name += ", a pool made then";
    if (pool == Pool::kAfter) name += " before, a pool made then";
  }
  if (screening != Screening::kAutomatic)
    name += formatted(", screening {}", kScreeningNames[static_cast<std::size_t>(screening)]);
  if (ranks > 0) name += formatted(", over {} rank{}", ranks, ranks == 1 ? "" : "s");
  if (chunk > 0) name += formatted(", chunks of {}", chunk);
  return name;
}

Result<Answer> answer(const Problem& problem, const Way& way) {
  return way.ranks > 0 ? sharded_answer(problem, way) : Run(problem, way).result();
}

}  // namespace seriatim::agreement
