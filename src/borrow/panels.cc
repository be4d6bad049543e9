// Pooling into panels that the caller keeps.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>

#include "base/admit.hpp"
#include "base/checked.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "seriatim/borrow.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

Status invalid(std::string_view argument, std::string_view what, Place place) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), place);
}

// One panel of one ask: the unit of parallel work.
struct Piece {
  std::int64_t ask = 0;
  std::int64_t first_group = 0;
  std::int64_t groups = 0;
  float largest = 0.0f;       // infinity: something was not finite
  bool bad_position = false;  // a coordinate out of range
};

bool dense_from(const ConstTensor& tensor, int axis) {
  std::int64_t dense = dtype_bytes(tensor.dtype);
  for (int i = tensor.rank - 1; i >= axis; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (tensor.shape[at] > 1 && tensor.stride_bytes[at] != dense) return false;
    dense *= tensor.shape[at];
  }
  return true;
}

Status admit_ask(const Geometry& geometry, const PoolAsk& ask, std::int64_t row) {
  const Place place{row, -1};
  const auto placed = [&](const Status& s) { return Status::error(s.code(), s.argument(), s.message(), place); };
  if (Status s = geometry.check_run(ask.run, row); !s.ok()) return s;
  if (Status s = admit_view("raw", ask.raw, geometry.index_dtype(), {-1, geometry.index_dim()}); !s.ok())
    return placed(s);
  if (!dense_from(ask.raw, 0)) return invalid("raw", "its tokens are not dense", place);
  if (Status s = admit_view("panels", ask.panels, geometry.index_dtype(), {-1, geometry.index_dim(), kPanel}); !s.ok())
    return placed(s);
  if (!dense_from(as_const(ask.panels), 0)) return invalid("panels", "they are not dense", place);
  const std::int64_t slots = ask.raw.shape[0];
  if (ask.coordinates.rank != 0) {
    if (Status s = admit_view("coordinates", ask.coordinates, DType::kI64, {3, slots}); !s.ok()) return placed(s);
  } else if (!geometry.rope_axes().empty()) {
    return invalid("coordinates", "missing where the geometry names rope_axes", place);
  }
  const auto end = checked_add(ask.first_slot, ask.run.tokens);
  if (ask.first_slot < 0 || !end || *end > slots)
    return invalid("raw", formatted("{} slots where {} from {} are needed", slots, ask.run.tokens, ask.first_slot),
                   place);
  if (ask.first_group < 0) return invalid("first_group", formatted("{} is negative", ask.first_group), place);
  const std::int64_t groups = geometry.index_keys(ask.run.tokens);
  if (groups > ask.panels.shape[0] * kPanel)
    return invalid("panels", formatted("{} of them have no place for group {}", ask.panels.shape[0], groups - 1),
                   place);
  return {};
}

std::byte* lane_of(const PoolAsk& ask, std::int64_t group) { return ask.panels.at(group / kPanel, 0, group % kPanel); }

// One key that arrived finished: its dims become the strided elements of a lane. Gives its largest magnitude.
float store_lane(const Geometry& geometry, const std::byte* key, std::byte* lane) {
  const std::int64_t bytes = dtype_bytes(geometry.index_dtype());
  float largest = 0.0f;
  bool finite = true;
  for (std::int64_t i = 0; i < geometry.index_dim(); ++i) {
    const float value = load_element(key + i * bytes, geometry.index_dtype());
    finite = finite && std::isfinite(value);
    largest = std::max(largest, std::fabs(value));
    std::memcpy(lane + i * kPanel * bytes, key + i * bytes, static_cast<std::size_t>(bytes));
  }
  return finite ? largest : std::numeric_limits<float>::infinity();
}

// Coordinates of each group's first token. Gives false if one is out of range.
bool read_coordinates(const Geometry& geometry, const PoolAsk& ask, const Piece& piece,
                      std::array<Coordinates, kPanel>& at) {
  for (std::int64_t g = 0; g < piece.groups; ++g) {
    const std::int64_t slot = ask.first_slot + (piece.first_group + g) * geometry.key_tokens();
    for (std::size_t axis = 0; axis < 3; ++axis) {
      std::int64_t position = 0;
      std::memcpy(&position, ask.coordinates.at(static_cast<std::int64_t>(axis), slot), sizeof position);
      if (position < 0 || position >= Geometry::kPositions) return false;
      at[static_cast<std::size_t>(g)][axis] = static_cast<std::int32_t>(position);
    }
  }
  return true;
}

void pool_piece(const Geometry& geometry, const float* norm_weight, const PoolAsk& ask, Pooler& pooler, Piece& piece) {
  const std::int64_t r = geometry.key_tokens();
  const std::byte* raw = ask.raw.at(ask.first_slot + piece.first_group * r);
  if (geometry.finished_keys()) {
    for (std::int64_t g = 0; g < piece.groups; ++g) {
      const std::int64_t group = piece.first_group + g;
      piece.largest =
          std::max(piece.largest, store_lane(geometry, ask.raw.at(ask.first_slot + group), lane_of(ask, group)));
    }
    return;
  }
  std::array<Coordinates, kPanel> at;
  const bool placed = ask.coordinates.rank != 0;
  if (placed && !read_coordinates(geometry, ask, piece, at)) {
    piece.bad_position = true;
    return;
  }
  piece.largest = pooler.pool(norm_weight, raw, piece.groups, ask.run.anchor + piece.first_group * r,
                              placed ? at.data() : nullptr, lane_of(ask, piece.first_group));
}

class PoolPieces final : public Task {
 public:
  PoolPieces(const Geometry& geometry, const float* norm_weight, std::span<const PoolAsk> asks,
             std::span<Pooler> poolers, std::span<Piece> pieces)
      : geometry_(geometry), norm_weight_(norm_weight), asks_(asks), poolers_(poolers), pieces_(pieces) {}
  void perform(std::int64_t unit, int worker) override {
    Piece& piece = pieces_[static_cast<std::size_t>(unit)];
    pool_piece(geometry_, norm_weight_, asks_[static_cast<std::size_t>(piece.ask)],
               poolers_[static_cast<std::size_t>(worker)], piece);
  }

 private:
  const Geometry& geometry_;
  const float* norm_weight_;
  std::span<const PoolAsk> asks_;
  std::span<Pooler> poolers_;
  std::span<Piece> pieces_;
};

}  // namespace

Result<PanelPooler> PanelPooler::create(const Geometry& geometry, std::span<const float> norm_weight,
                                        Executor& executor, Kernels kernels) {
  DefaultFloatEnvironment environment;
  const auto dim = static_cast<std::size_t>(geometry.index_dim());
  if (!norm_weight.empty() && norm_weight.size() != dim) {
    return Status::error(Code::kInvalidArgument, "norm_weight",
                         formatted("norm_weight: {} entries for {} dims", norm_weight.size(), dim));
  }
  for (std::size_t i = 0; i < norm_weight.size(); ++i) {
    if (std::isfinite(norm_weight[i])) continue;
    return Status::error(Code::kNotFinite, "norm_weight", formatted("norm_weight: entry {} is {}", i, norm_weight[i]),
                         {-1, static_cast<std::int64_t>(i)});
  }
  try {
    PanelPooler made(geometry, executor);
    made.norm_weight_.assign(norm_weight.begin(), norm_weight.end());
    made.norm_weight_.resize(dim);
    for (int worker = 0; worker < executor.concurrency(); ++worker) {
      auto pooler = Pooler::create(geometry, kernels);
      if (!pooler.ok()) return pooler.status();
      made.poolers_.push_back(std::move(*pooler));
    }
    return made;
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "pooler", "pooler: the system refused memory");
  }
}

Result<float> PanelPooler::pool(std::span<const PoolAsk> asks) {
  DefaultFloatEnvironment environment;
  try {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < asks.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      if (Status s = admit_ask(geometry_, asks[i], row); !s.ok()) return s;
      const std::int64_t groups = geometry_.index_keys(asks[i].run.tokens);
      for (std::int64_t group = asks[i].first_group; group < groups;) {
        const std::int64_t count = std::min(groups - group, kPanel - group % kPanel);
        pieces.push_back({row, group, count, 0.0f, false});
        group += count;
      }
    }
    PoolPieces task(geometry_, norm_weight_.data(), asks, poolers_, pieces);
    if (pieces.size() == 1) {
      task.run(0, 0);
    } else {
      executor_->run(static_cast<std::int64_t>(pieces.size()), task);
    }
    float largest = 0.0f;
    for (const Piece& piece : pieces) {
      const Place place{piece.ask, piece.first_group};
      if (piece.bad_position) return invalid("coordinates", "a position outside 0 .. 2^31 - 1", place);
      if (!std::isfinite(piece.largest)) {
        return Status::error(Code::kNotFinite, "raw",
                             formatted("raw: index keys of groups {} to {}, or their mean, are not finite",
                                       piece.first_group, piece.first_group + piece.groups - 1),
                             place);
      }
      largest = std::max(largest, piece.largest);
    }
    return largest;
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "pooler", "pooler: the system refused memory");
  }
}

}  // namespace seriatim
