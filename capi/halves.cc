#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"
#include "seriatim/attend.hpp"

using namespace seriatim;
using namespace seriatim::capi;

seriatim_status seriatim_partial_floats(const seriatim_geometry* geometry, std::int64_t* floats,
                                        seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"floats", floats}}); !s.ok()) return s;
    *floats = attend_partial_floats(geometry->geometry);
    return {};
  });
}

seriatim_status seriatim_attend_partials(seriatim_engine* engine, const seriatim_attend_ask* ask,
                                         const seriatim_const_rows* rows, std::int64_t first_split, std::int64_t splits,
                                         float* partials, std::int64_t partials_floats, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"rows", rows}}); !s.ok()) return s;
    std::span<float> out;
    if (Status s = take_array("partials", partials, partials_floats, out); !s.ok()) return s;
    if (Status s = engine->asks.take(ask, 1); !s.ok()) return s;
    return engine->runner.after_work(engine->engine.attend_partials(
        engine->asks.attends.front(), {rows->positions, rows->stride, rows->counts}, first_split, splits, out));
  });
}

seriatim_status seriatim_fold_partials(seriatim_engine* engine, const seriatim_geometry* geometry,
                                       const float* partials, std::int64_t partials_floats, std::int64_t splits,
                                       const float* sinks, std::int64_t sink_count, const seriatim_tensor* output,
                                       const seriatim_tensor* lse, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"geometry", geometry}}); !s.ok()) return s;
    std::span<const float> in;
    std::span<const float> logits;
    Tensor out;
    Tensor sums;
    if (Status s = take_array("partials", partials, partials_floats, in); !s.ok()) return s;
    if (Status s = take_array("sinks", sinks, sink_count, logits); !s.ok()) return s;
    if (Status s = take_tensor("output", output, out); !s.ok()) return s;
    if (Status s = take_tensor_or_null("lse", lse, sums); !s.ok()) return s;
    return engine->runner.after_work(engine->engine.fold_partials(geometry->geometry, in, splits, logits, out, sums));
  });
}
