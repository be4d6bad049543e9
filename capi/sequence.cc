#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"
#include "layer.hpp"
#include "seriatim/step.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

// What a caller's executor did wrong outweighs what came of it.
Status after_work(const seriatim_workspace& workspace, Status status) {
  if (workspace.watched == nullptr) return status;
  Status fault = workspace.watched->take_fault();
  return fault.ok() ? status : fault;
}

Status take_rows(const seriatim_rows* given, Rows& taken) {
  if (given == nullptr) return invalid("rows", "NULL");
  taken = {given->positions, given->stride, given->counts};
  return {};
}

}  // namespace

void seriatim_work_init(seriatim_work* work) {
  if (work == nullptr) return;
  *work = {};
  work->struct_size = sizeof *work;
}

seriatim_status seriatim_workspace_bytes_for(const seriatim_geometry* geometry, std::int64_t max_visible_tokens,
                                             std::int32_t concurrency, std::int64_t* bytes, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"bytes", bytes}}); !s.ok()) return s;
    return give(Workspace::bytes(geometry->geometry, max_visible_tokens, concurrency), bytes);
  });
}

seriatim_status seriatim_workspace_create(const seriatim_geometry* geometry, std::int64_t max_visible_tokens,
                                          seriatim_executor* executor, const char* kernels,
                                          seriatim_workspace** workspace, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"workspace", workspace}}); !s.ok()) return s;
    Kernels chosen = default_kernels();
    if (Status s = take_kernels(kernels, chosen); !s.ok()) return s;
    std::shared_ptr<Executor> shared;
    std::unique_ptr<WatchedExecutor> watched;
    if (executor != nullptr) shared = executor->executor;
    if (executor != nullptr && executor->custom) watched = std::make_unique<WatchedExecutor>(*shared);
    Executor& runs = watched != nullptr ? *watched : shared != nullptr ? *shared : serial_executor();
    auto made = Workspace::create(geometry->geometry, max_visible_tokens, runs, chosen);
    if (!made.ok()) return made.status();
    *workspace = new seriatim_workspace{std::move(shared), std::move(watched), std::move(*made)};
    return {};
  });
}

seriatim_status seriatim_workspace_bytes(const seriatim_workspace* workspace, std::int64_t* bytes,
                                         seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"workspace", workspace}, {"bytes", bytes}}); !s.ok()) return s;
    *bytes = workspace->workspace.bytes();
    return {};
  });
}

seriatim_status seriatim_workspace_work(const seriatim_workspace* workspace, seriatim_work* work,
                                        seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"workspace", workspace}}); !s.ok()) return s;
    if (Status s = check_output_bytes("work", work); !s.ok()) return s;
    const WorkDone& done = workspace->workspace.done();
    give_struct(work, seriatim_work{0, done.queries, done.dense_rows, done.groups_scored, done.groups_selected,
                                    done.row_tokens});
    return {};
  });
}

seriatim_status seriatim_workspace_clear_work(seriatim_workspace* workspace, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"workspace", workspace}}); !s.ok()) return s;
    workspace->workspace.clear_done();
    return {};
  });
}

void seriatim_workspace_destroy(seriatim_workspace* workspace) { delete workspace; }

seriatim_status seriatim_plan(const seriatim_layer* layer, const seriatim_tensor* index_queries,
                              const seriatim_tensor* index_head_weights, const std::int64_t* positions,
                              std::int64_t query_count, std::int32_t nan_policy, seriatim_workspace* workspace,
                              const seriatim_rows* rows, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"workspace", workspace}}); !s.ok()) return s;
    IndexQueries queries;
    Rows out;
    NanPolicy nan{};
    if (Status s = take_tensor("index_queries", index_queries, queries.queries); !s.ok()) return s;
    if (Status s = take_tensor_or_null("index_head_weights", index_head_weights, queries.head_weights); !s.ok())
      return s;
    if (Status s = take_array("positions", positions, query_count, queries.positions); !s.ok()) return s;
    if (Status s = take_nan_policy(nan_policy, nan); !s.ok()) return s;
    if (Status s = take_rows(rows, out); !s.ok()) return s;
    const auto view = take_layer(layer);
    if (!view.ok()) return view.status();
    return after_work(*workspace, plan(*view, queries, nan, workspace->workspace, out));
  });
}

seriatim_status seriatim_attend(const seriatim_layer* layer, const seriatim_tensor* queries,
                                const std::int64_t* positions, std::int64_t query_count, const float* sinks,
                                std::int64_t sink_count, const seriatim_rows* rows, seriatim_workspace* workspace,
                                const seriatim_tensor* output, const seriatim_tensor* lse, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"workspace", workspace}}); !s.ok()) return s;
    AttendQueries asked;
    Rows in;
    Tensor out;
    Tensor sums;
    if (Status s = take_tensor("queries", queries, asked.queries); !s.ok()) return s;
    if (Status s = take_array("positions", positions, query_count, asked.positions); !s.ok()) return s;
    if (Status s = take_array("sinks", sinks, sink_count, asked.sinks); !s.ok()) return s;
    if (Status s = take_rows(rows, in); !s.ok()) return s;
    if (Status s = take_tensor("output", output, out); !s.ok()) return s;
    if (Status s = take_tensor_or_null("lse", lse, sums); !s.ok()) return s;
    const auto view = take_layer(layer);
    if (!view.ok()) return view.status();
    return after_work(*workspace, attend(*view, asked, in, workspace->workspace, out, sums));
  });
}
