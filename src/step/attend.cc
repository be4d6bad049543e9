#include "seriatim/attend.hpp"

#include <limits>

#include "attend/attend_admit.hpp"
#include "base/admit.hpp"
#include "base/format.hpp"
#include "step/admit_queries.hpp"
#include "step/attend_units.hpp"
#include "step/first_fault.hpp"
#include "step/workspace.hpp"

namespace seriatim {
namespace {

// Admits one batch of queries over one layer; a unit of work is one query.
class Admission final : public Task {
 public:
  Admission(const AttendBatch& batch, Workspace::Impl& work)
      : layer_(batch.layer),
        geometry_(*batch.layer.geometry),
        queries_(batch.queries),
        rows_(batch.rows),
        work_(work),
        output_(batch.output),
        lse_(batch.lse) {}

  Status admit() {
    const std::int64_t count = queries_.queries.shape[0];
    const std::int64_t heads = geometry_.query_heads();
    if (Status s = check_workspace(work_, geometry_); !s.ok()) return s;
    if (Status s = admit_view("queries", queries_.queries, geometry_.kv_dtype(), {-1, heads, geometry_.head_dim()});
        !s.ok())
      return s;
    if (!is_float(output_.dtype)) {
      return attend_fault(Code::kInvalidArgument, "output", formatted("dtype {}", dtype_name(output_.dtype)), {});
    }
    if (Status s = admit_view("output", output_, output_.dtype, {count, heads, geometry_.value_dim()}); !s.ok())
      return s;
    if (!lse_.empty()) {
      if (Status s = admit_view("lse", lse_, DType::kF32, {count, heads}); !s.ok()) return s;
      const bool aligned = reinterpret_cast<std::uintptr_t>(lse_.data) % alignof(float) == 0;
      if (lse_.stride_bytes[1] != dtype_bytes(DType::kF32) || !aligned) {
        return attend_fault(Code::kInvalidArgument, "lse", "heads are not contiguous and aligned", {});
      }
    }
    if (Status s = admit_sinks(geometry_, queries_.sinks); !s.ok()) return s;
    if (Status s = admit_positions(layer_, queries_.positions, count, std::numeric_limits<std::int64_t>::max());
        !s.ok())
      return s;
    return admit_rows(count);
  }

  void perform(std::int64_t query, int) override {
    if (!admit_query(query).ok()) fault_.note(query);
  }

 private:
  Status admit_rows(std::int64_t count) {
    if (count > 0 && (rows_.positions == nullptr || rows_.counts == nullptr)) {
      return attend_fault(Code::kInvalidArgument, "rows", "no memory", {});
    }
    if (count == 1) return admit_query(0);
    work_.executor->run(count, *this);
    return fault_.place() == FirstFault::kNone ? Status() : admit_query(fault_.place());
  }

  Status admit_query(std::int64_t q) const {
    if (rows_.counts[q] < 0 || rows_.counts[q] > rows_.stride) {
      return attend_fault(Code::kInvalidArgument, "rows",
                          formatted("a count of {} in a stride of {}", rows_.counts[q], rows_.stride), {q, -1});
    }
    const VisibleRun run = visible_run(layer_, queries_.positions[static_cast<std::size_t>(q)]);
    return admit_attend(layer_, run, row_of(queries_.queries, q), rows_.row(q), q);
  }

  const LayerView& layer_;
  const Geometry& geometry_;
  const AttendQueries& queries_;
  const ConstRows& rows_;
  Workspace::Impl& work_;
  const Tensor& output_;
  const Tensor& lse_;
  FirstFault fault_;
};

}  // namespace

Status attend(const LayerView& layer, const AttendQueries& queries, ConstRows rows, Workspace& workspace, Tensor output,
              Tensor lse) {
  const AttendBatch batch{layer, queries, rows, output, lse};
  if (Status s = Admission(batch, workspace.impl()).admit(); !s.ok()) return s;
  const std::int64_t first = attend_batch(batch, workspace.impl());
  if (first == FirstFault::kNone) return {};
  const std::int64_t query = first / layer.geometry->query_heads();
  const std::int64_t head = first % layer.geometry->query_heads();
  return attend_fault(Code::kOverflow, "output", formatted("head {}: a logit passes f32, or an output its dtype", head),
                      {query, head});
}

}  // namespace seriatim
