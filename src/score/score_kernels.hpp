// The score kernels: blocks of queries against panels of pooled keys. One family per instruction set, and one that is
// score_ref; all give its bits.
//
// A lane is a group, so nothing is ever added across lanes. One pass reads a panel once for every query and head of the
// block; the dots of several of them are in flight at once, because each is one long chain of fused multiply-adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/magnitude.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/tensor.hpp"

// One line per dtype that index keys may have: X(name, DType). Declares, dispatches and tests the family.
#define SERIATIM_SCORE_KERNELS(X) X(f32, DType::kF32) X(bf16, DType::kBf16) X(f16, DType::kF16)

namespace seriatim {

// The groups of a view as their panels hold them. Panel 0 is the one of group 0, which stands in its lane `lead`: the
// lanes before it belong to someone else, at rest; those past the last group may be being written and are never read.
class Panels {
 public:
  static constexpr std::int64_t kLanes = PooledKeys::kPanelGroups;

  explicit Panels(const PooledKeys& pooled)
      : pooled_(pooled), lead_(pooled.first_slot % kLanes), slots_(pooled.groups == 0 ? 0 : lead_ + pooled.groups) {}

  std::int64_t lead() const { return lead_; }
  std::int64_t count() const { return (slots_ + kLanes - 1) / kLanes; }
  // Lanes of a panel that may be read.
  std::int64_t lanes(std::int64_t panel) const {
    return slots_ - panel * kLanes < kLanes ? slots_ - panel * kLanes : kLanes;
  }
  std::int64_t elements() const { return kLanes * pooled_.dim; }
  DType dtype() const { return pooled_.dtype; }

  const std::byte* at(std::int64_t panel) const {
    const std::int64_t slot = pooled_.first_slot - lead_ + panel * kLanes;
    return pooled_.pages[slot / pooled_.page_groups] + pooled_.offset_bytes +
           row_bytes(pooled_.dtype, slot % pooled_.page_groups * pooled_.dim);
  }

  // `panel` where all of its lanes may be read; else a copy in `edge`, whose other lanes are zero.
  const std::byte* whole(std::int64_t panel, std::byte* edge) const;

 private:
  const PooledKeys& pooled_;
  const std::int64_t lead_;
  const std::int64_t slots_;  // from lane 0 of panel 0
};

struct ScoreBlock {
  const Geometry* geometry = nullptr;
  std::int64_t count = 0;               // queries; each selection of one is a query by itself
  const float* queries = nullptr;       // [count][heads_per_selection][index_dim] f32, in the order of `pack`
  const float* head_weights = nullptr;  // [count][heads_per_selection], or null
  const PooledKeys* pooled = nullptr;   // what the block's furthest query sees
  std::int64_t first_panel = 0;         // the panels to score
  std::int64_t panels = 0;
  std::byte* edge = nullptr;  // [score_edge_bytes], 64-byte aligned
  float* scores = nullptr;    // [count][16 * panels]: every lane is written, those that hold no group of the view too
  std::int64_t stride = 0;    // floats from one query to the next
};

// Room for one panel.
std::int64_t score_edge_bytes(const Geometry& geometry);

struct ScoreKernels {
  const char* name;  // of the instruction set that was compiled, "reference" for score_ref

  // Queries as `score` of the same kernels reads them.
  // Takes   queries [Q, index_heads, index_dim] in index_dtype or f32. Gives packed [Q * index_heads * index_dim]
  void (*pack)(const ConstTensor& queries, float* packed);
  // Gives   the scores of every group in the panels, by score_ref's bits.
  void (*score)(const ScoreBlock& block);
  // The best of `count` scores, one at least: NaN if one of them is, +0 rather than -0.
  float (*best)(const float* scores, std::int64_t count);
};

const ScoreKernels& score_kernels(Kernels kernels);
const ScoreKernels& score_reference();

// Head weights [Q, index_heads] f32 as ScoreBlock takes them, for all kernels alike.
void pack_head_weights(const ConstTensor& head_weights, float* packed);

// The largest magnitude in the panels, `edge` as in ScoreBlock.
float max_abs_of_panels(const RowKernels& kernels, const PooledKeys& pooled, std::int64_t first_panel,
                        std::int64_t panels, std::byte* edge);

}  // namespace seriatim
