// A rank's own splits: those that lie in its range, and those of its borders, whose other keys and values it is sent.
#include <algorithm>
#include <cstring>

#include "seriatim/attend.hpp"
#include "seriatim/borrow.hpp"
#include "shard/attend.hpp"

namespace seriatim {

std::int64_t AttendStep::token_bytes() const {
  const Geometry& g = geometry();
  return row_bytes(g.kv_dtype(), g.kv_heads() * (g.head_dim() + (g.values_alias_keys() ? 0 : g.value_dim())));
}

namespace {

// A split of one query that this rank reduces and does not hold all of.
struct BorderSplit {
  std::int64_t query;  // of the batch
  std::int64_t split;
  std::int64_t first;  // entry
  std::int64_t count;
};

class Partials {
 public:
  Partials(const AttendStep& step, Engine& engine, Group& group, OwnPartials& own)
      : step_(step), geometry_(step.geometry()), engine_(engine), group_(group), own_(own) {}

  Status run() {
    lay_out();
    if (Status s = send_pieces(); !s.ok()) return s;
    for (const AskRange& range : step_.ranges) {
      if (Status s = reduce_whole(range); !s.ok()) return s;
    }
    if (Status s = receive_pieces(); !s.ok()) return s;
    for (const AskRange& range : step_.ranges) {
      if (Status s = reduce_borders(range); !s.ok()) return s;
    }
    return {};
  }

 private:
  std::size_t floats() const { return static_cast<std::size_t>(attend_partial_floats(geometry_)); }
  const RowSpread& spread(std::int64_t query) const { return step_.spreads[static_cast<std::size_t>(query)]; }
  std::int64_t first_split(std::int64_t query) const {
    return spread(query).splits[static_cast<std::size_t>(group_.rank())];
  }
  float* partial(std::int64_t query, std::int64_t split) {
    return own_.floats.data() + own_.first[static_cast<std::size_t>(query)] +
           (split - first_split(query)) * attend_partial_floats(geometry_);
  }

  void lay_out() {
    own_.first.assign(1, 0);
    for (const RowSpread& one : step_.spreads)
      own_.first.push_back(own_.first.back() + one.splits_of(group_.rank()) * attend_partial_floats(geometry_));
    own_.floats.resize(static_cast<std::size_t>(own_.first.back()));
    sent_.resize(static_cast<std::size_t>(group_.size()));
    received_.resize(sent_.size());
    read_.assign(sent_.size(), 0);
  }

  void copy_token(LayerView const& layer, std::int64_t position, std::byte* to) const {
    const auto key = static_cast<std::size_t>(row_bytes(geometry_.kv_dtype(), geometry_.head_dim()));
    const auto value = static_cast<std::size_t>(row_bytes(geometry_.kv_dtype(), geometry_.value_dim()));
    for (std::int64_t h = 0; h < geometry_.kv_heads(); ++h, to += key) std::memcpy(to, layer.key(position, h), key);
    for (std::int64_t h = 0; !geometry_.values_alias_keys() && h < geometry_.kv_heads(); ++h, to += value)
      std::memcpy(to, layer.value(position, h), value);
  }

  Status send_pieces() {
    for (const AskRange& range : step_.ranges) {
      const LayerView& local = step_.asks[range.ask].layer->local;
      for (std::int64_t q = range.place; q < range.place + range.count; ++q) {
        for (const SplitPiece& piece : spread(q).pieces) {
          if (piece.to == group_.rank()) need(piece);
          if (piece.from != group_.rank()) continue;
          std::vector<std::byte>& to = sent_[static_cast<std::size_t>(piece.to)];
          for (std::int64_t e = 0; e < piece.count; ++e) {
            to.resize(to.size() + static_cast<std::size_t>(step_.token_bytes()));
            copy_token(local, step_.rows.row(q)[static_cast<std::size_t>(piece.first + e)],
                       to.data() + to.size() - step_.token_bytes());
          }
        }
      }
    }
    for (std::size_t to = 0; to < sent_.size(); ++to) {
      if (sent_[to].empty()) continue;
      if (Status s = group_.transport().send(static_cast<int>(to), sent_[to]); !s.ok()) return s;
    }
    return {};
  }

  void need(const SplitPiece& piece) {
    std::vector<std::byte>& from = received_[static_cast<std::size_t>(piece.from)];
    from.resize(from.size() + static_cast<std::size_t>(piece.count * step_.token_bytes()));
  }

  Status receive_pieces() {
    for (std::size_t from = 0; from < received_.size(); ++from) {
      if (received_[from].empty()) continue;
      if (Status s = group_.transport().receive(static_cast<int>(from), received_[from]); !s.ok()) return s;
    }
    return {};
  }

  bool is_border(std::int64_t query, std::int64_t split) const {
    const std::vector<SplitPiece>& pieces = spread(query).pieces;
    return std::any_of(pieces.begin(), pieces.end(), [&](const SplitPiece& p) { return p.split == split; });
  }

  // The splits of a query that lie wholly in this rank's range are neighbours.
  struct Whole {
    std::int64_t first;
    std::int64_t count;
  };
  Whole whole_splits(std::int64_t query) const {
    Whole whole{first_split(query), spread(query).splits_of(group_.rank())};
    if (whole.count > 0 && is_border(query, whole.first)) {
      ++whole.first;
      --whole.count;
    }
    if (whole.count > 0 && is_border(query, whole.first + whole.count - 1)) --whole.count;
    return whole;
  }

  Status reduce_whole(const AskRange& range) {
    const ShardedAttendAsk& ask = step_.asks[range.ask];
    std::int64_t most = 0;
    for (std::int64_t q = range.place; q < range.place + range.count; ++q) most = std::max(most, whole_splits(q).count);
    if (most == 0) return {};
    const std::int64_t stride = most * kSplitEntries;
    std::vector<std::int32_t> rows(static_cast<std::size_t>(range.count * stride));
    std::vector<std::int32_t> counts;
    std::vector<std::int64_t> positions;
    const VisibleRun local = ask.layer->local.run;
    for (std::int64_t q = 0; q < range.count; ++q) {
      const Whole whole = whole_splits(range.place + q);
      const auto row = step_.rows.row(range.place + q);
      const std::int64_t first = std::min(whole.first * kSplitEntries, static_cast<std::int64_t>(row.size()));
      const std::int64_t count = std::min(whole.count * kSplitEntries, static_cast<std::int64_t>(row.size()) - first);
      std::copy_n(row.begin() + first, count, rows.begin() + q * stride);
      counts.push_back(static_cast<std::int32_t>(count));
      const std::int64_t position = ask.queries.positions[static_cast<std::size_t>(range.first + q)];
      positions.push_back(std::clamp(position, local.anchor, local.anchor + local.tokens - 1));
    }
    const std::size_t size = static_cast<std::size_t>(range.count * most) * floats();
    std::vector<float> apart(range.count == 1 ? 0 : size);  // one query's go where they belong
    const std::span<float> partials =
        range.count == 1 ? std::span(partial(range.place, whole_splits(range.place).first), size) : std::span(apart);
    const AttendAsk plain{&ask.layer->local, {some_queries(step_, range), positions, {}}};
    if (Status s = engine_.attend_partials(plain, {rows.data(), stride, counts.data()}, 0, most, partials); !s.ok())
      return s;
    for (std::int64_t q = 0; !apart.empty() && q < range.count; ++q) {
      const Whole whole = whole_splits(range.place + q);
      if (whole.count == 0) continue;
      std::copy_n(apart.data() + static_cast<std::size_t>(q * most) * floats(),
                  static_cast<std::size_t>(whole.count) * floats(), partial(range.place + q, whole.first));
    }
    return {};
  }

  std::vector<BorderSplit> borders_of(const AskRange& range) const {
    std::vector<BorderSplit> borders;
    for (std::int64_t q = range.place; q < range.place + range.count; ++q) {
      const auto entries = static_cast<std::int64_t>(step_.rows.row(q).size());
      std::int64_t last = -1;
      for (const SplitPiece& piece : spread(q).pieces) {
        if (piece.to != group_.rank() || piece.split == last) continue;
        last = piece.split;
        borders.push_back({q, last, last * kSplitEntries, std::min(kSplitEntries, entries - last * kSplitEntries)});
      }
    }
    return borders;
  }

  // The splits' keys and values lie one after the other; a split's entries are positions of their own there. The bits
  // of a partial depend on what is read and in which order, not on where it stands.
  Status reduce_borders(const AskRange& range) {
    const std::vector<BorderSplit> borders = borders_of(range);
    if (borders.empty()) return {};
    std::int64_t tokens = 0;
    for (const BorderSplit& border : borders) tokens += border.count;
    const auto query_bytes =
        static_cast<std::size_t>(row_bytes(geometry_.kv_dtype(), geometry_.query_heads() * geometry_.head_dim()));
    std::vector<std::byte> memory(static_cast<std::size_t>(tokens * step_.token_bytes()));
    std::vector<std::byte> queries(borders.size() * query_bytes);
    std::vector<std::int32_t> rows(borders.size() * kSplitEntries);
    std::vector<std::int32_t> counts;
    std::vector<std::int64_t> positions;
    std::int64_t next = 0;
    for (std::size_t b = 0; b < borders.size(); ++b) {
      const BorderSplit& border = borders[b];
      fill(range, border, memory.data() + next * step_.token_bytes());
      for (std::int64_t e = 0; e < border.count; ++e)
        rows[b * kSplitEntries + static_cast<std::size_t>(e)] = static_cast<std::int32_t>(next + e);
      next += border.count;
      counts.push_back(static_cast<std::int32_t>(border.count));
      positions.push_back(next - 1);
      copy_query(range, border.query, queries.data() + b * query_bytes);
    }
    BorrowedLayer layer(geometry_);
    if (Status s = layer.bind({0, tokens}, tensors(memory.data(), tokens)); !s.ok()) return s;
    std::vector<float> partials(borders.size() * floats());
    const auto count = static_cast<std::int64_t>(borders.size());
    const AttendAsk ask{&layer.view(),
                        {seriatim::as_const(dense_view(queries.data(), geometry_.kv_dtype(),
                                                       {count, geometry_.query_heads(), geometry_.head_dim()})),
                         positions,
                         {}}};
    if (Status s = engine_.attend_partials(ask, {rows.data(), kSplitEntries, counts.data()}, 0, 1, partials); !s.ok())
      return s;
    for (std::size_t b = 0; b < borders.size(); ++b)
      std::copy_n(partials.data() + b * floats(), floats(), partial(borders[b].query, borders[b].split));
    return {};
  }

  void fill(const AskRange& range, const BorderSplit& border, std::byte* to) {
    const auto row = step_.rows.row(border.query);
    const RowSpread& one = spread(border.query);
    const auto own = static_cast<std::size_t>(group_.rank());
    for (std::int64_t e = border.first; e < border.first + border.count; ++e, to += step_.token_bytes()) {
      if (e >= one.entries[own] && e < one.entries[own + 1]) {
        copy_token(step_.asks[range.ask].layer->local, row[static_cast<std::size_t>(e)], to);
        continue;
      }
      const auto from = static_cast<std::size_t>(std::upper_bound(one.entries.begin(), one.entries.end(), e) -
                                                 one.entries.begin() - 1);
      std::memcpy(to, received_[from].data() + read_[from], static_cast<std::size_t>(step_.token_bytes()));
      read_[from] += static_cast<std::size_t>(step_.token_bytes());
    }
  }

  void copy_query(const AskRange& range, std::int64_t query, std::byte* to) const {
    const ConstTensor from = row_of(some_queries(step_, range), query - range.place);
    const std::int64_t element = dtype_bytes(geometry_.kv_dtype());
    for (std::int64_t h = 0; h < geometry_.query_heads(); ++h) {
      for (std::int64_t i = 0; i < geometry_.head_dim(); ++i, to += element)
        std::memcpy(to, from.at(h, i), static_cast<std::size_t>(element));
    }
  }

  BorrowedTensors tensors(const std::byte* memory, std::int64_t tokens) const {
    const std::int64_t keys = row_bytes(geometry_.kv_dtype(), geometry_.kv_heads() * geometry_.head_dim());
    BorrowedTensors lent;
    lent.keys = dense_view(memory, geometry_.kv_dtype(), {tokens, geometry_.kv_heads(), geometry_.head_dim()});
    lent.keys.stride_bytes[0] = step_.token_bytes();
    if (geometry_.values_alias_keys()) return lent;
    lent.values =
        dense_view(memory + keys, geometry_.kv_dtype(), {tokens, geometry_.kv_heads(), geometry_.value_dim()});
    lent.values.stride_bytes[0] = step_.token_bytes();
    return lent;
  }

  const AttendStep& step_;
  const Geometry& geometry_;
  Engine& engine_;
  Group& group_;
  OwnPartials& own_;
  std::vector<std::vector<std::byte>> sent_;      // to each rank
  std::vector<std::vector<std::byte>> received_;  // from each rank
  std::vector<std::size_t> read_;                 // of received_
};

}  // namespace

Status own_partials(const AttendStep& step, Engine& engine, Group& group, OwnPartials& own) {
  return Partials(step, engine, group, own).run();
}

}  // namespace seriatim
