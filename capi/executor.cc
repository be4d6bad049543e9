
#include "base/format.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

constexpr std::int32_t kMostThreads = 1024;

class CustomExecutor final : public Executor {
 public:
  explicit CustomExecutor(const seriatim_executor_callbacks& callbacks) : callbacks_(callbacks) {}
  ~CustomExecutor() override {
    if (callbacks_.dispose != nullptr) callbacks_.dispose(callbacks_.user);
  }
  int concurrency() const override { return callbacks_.concurrency; }
  void run(std::int64_t units, Task& task) override {
    callbacks_.run(
        callbacks_.user, units,
        [](void* data, std::int64_t unit, std::int32_t worker) { static_cast<Task*>(data)->run(unit, worker); }, &task);
  }

 private:
  const seriatim_executor_callbacks callbacks_;
};

}  // namespace

void seriatim_executor_callbacks_init(seriatim_executor_callbacks* callbacks) {
  if (callbacks == nullptr) return;
  *callbacks = {};
  callbacks->struct_size = sizeof *callbacks;
  callbacks->concurrency = 1;
}

seriatim_status seriatim_executor_create(std::int32_t threads, seriatim_executor** executor, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"executor", executor}}); !s.ok()) return s;
    if (Status s = check_choice("threads", threads, kMostThreads); !s.ok()) return s;
    auto handle = std::make_unique<seriatim_executor>();
    handle->executor = make_executor(threads);
    if (handle->executor == nullptr)
      return Status::error(Code::kOutOfMemory, "executor", "executor: the system refused memory");
    *executor = handle.release();
    return {};
  });
}

seriatim_status seriatim_executor_create_custom(const seriatim_executor_callbacks* callbacks,
                                                seriatim_executor** executor, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"executor", executor}}); !s.ok()) return s;
    seriatim_executor_callbacks taken;
    seriatim_executor_callbacks_init(&taken);
    if (Status s = take_struct("callbacks", callbacks, taken); !s.ok()) return s;
    if (Status s = check_reserved("callbacks", taken.reserved); !s.ok()) return s;
    if (taken.run == nullptr) return invalid("run", "NULL");
    if (taken.concurrency < 1 || taken.concurrency > kMostThreads) {
      return invalid("concurrency", formatted("{} is not in 1..{}", taken.concurrency, kMostThreads).c_str());
    }
    // First: once the executor is made, its end disposes of `user`.
    auto handle = std::make_unique<seriatim_executor>();
    handle->executor = std::make_shared<CustomExecutor>(taken);
    handle->custom = true;
    *executor = handle.release();
    return {};
  });
}

seriatim_status seriatim_executor_concurrency(const seriatim_executor* executor, std::int32_t* concurrency,
                                              seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"executor", executor}, {"concurrency", concurrency}}); !s.ok()) return s;
    *concurrency = executor->executor->concurrency();
    return {};
  });
}

void seriatim_executor_destroy(seriatim_executor* executor) { delete executor; }
