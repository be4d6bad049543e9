#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"

using namespace seriatim;
using namespace seriatim::capi;

void seriatim_plan_ask_init(seriatim_plan_ask* ask) {
  if (ask == nullptr) return;
  *ask = {};
  ask->struct_size = sizeof *ask;
}

void seriatim_attend_ask_init(seriatim_attend_ask* ask) {
  if (ask == nullptr) return;
  *ask = {};
  ask->struct_size = sizeof *ask;
}

seriatim_status seriatim_plan(seriatim_engine* engine, const seriatim_plan_ask* asks, std::int64_t ask_count,
                              std::int32_t nan_policy, const seriatim_rows* rows, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"rows", rows}}); !s.ok()) return s;
    NanPolicy nan{};
    if (Status s = take_nan_policy(nan_policy, nan); !s.ok()) return s;
    if (Status s = engine->asks.take(asks, ask_count); !s.ok()) return s;
    return engine->runner.after_work(
        engine->engine.plan(engine->asks.plans, nan, {rows->positions, rows->stride, rows->counts}));
  });
}

seriatim_status seriatim_attend(seriatim_engine* engine, const seriatim_attend_ask* asks, std::int64_t ask_count,
                                const seriatim_const_rows* rows, const seriatim_tensor* output,
                                const seriatim_tensor* lse, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"rows", rows}}); !s.ok()) return s;
    Tensor out;
    Tensor sums;
    if (Status s = take_tensor("output", output, out); !s.ok()) return s;
    if (Status s = take_tensor_or_null("lse", lse, sums); !s.ok()) return s;
    if (Status s = engine->asks.take(asks, ask_count); !s.ok()) return s;
    return engine->runner.after_work(
        engine->engine.attend(engine->asks.attends, {rows->positions, rows->stride, rows->counts}, out, sums));
  });
}
