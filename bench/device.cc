// seriatim-device-bench --device NAME: what each kernel takes on a device and which part of its memory's bandwidth that
// is, as one JSON. QSA's real geometry in bf16; a decode step and a prefill step at the end of one long sequence, on
// the device and, for the ratio, by the host's fastest kernels on one thread. Before anything is timed, the two answers
// are compared bit for bit.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/print.hpp"
#include "device/engine.hpp"
#include "seriatim/step.hpp"

namespace seriatim {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void stop(const Status& status) {
  bench::print(stderr, "seriatim-device-bench: {}\n", status.message());
  std::exit(2);
}

void must(const Status& status) {
  if (!status.ok()) stop(status);
}

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) stop(result.status());
  return *std::move(result);
}

// bf16 of magnitudes around 1, from a counter.
void fill(std::vector<std::uint16_t>& values, std::uint64_t& state) {
  for (std::uint16_t& value : values) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto bits = static_cast<std::uint32_t>(state >> 33);
    value = static_cast<std::uint16_t>(((bits & 1U) << 15) | ((125U + (bits >> 1) % 3U) << 7) | ((bits >> 8) & 0x7fU));
  }
}

ConstTensor as_bf16(const std::vector<std::uint16_t>& values, std::initializer_list<std::int64_t> shape) {
  return dense_view(values.data(), DType::kBf16, shape);
}

// The fastest of what fits into the time: a device that others use too is slower at times, never faster.
double seconds_of(double limit, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  double best = 1e30;
  for (int runs = 0; runs < 3 || (runs < 1000 && std::chrono::duration<double>(Clock::now() - began).count() < limit);
       ++runs) {
    const auto from = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - from).count());
  }
  return best;
}

struct Settings {
  std::string device;
  std::int64_t tokens = 262'144;
  std::int64_t prefill = 64;
  double seconds = 0.5;  // per measurement
};

class DeviceBench {
 public:
  explicit DeviceBench(const Settings& settings)
      : settings_(settings),
        geometry_(must(Geometry::admit([] {
          GeometryOptions options;  // the rest is QSA's own
          options.kv_dtype = options.index_dtype = DType::kBf16;
          return options;
        }()))),
        device_(must(Device::open(settings.device))),
        engine_(must(Engine::on(device_))) {
    CacheOptions options;
    options.capacity_tokens = settings.tokens;
    pages_ = must(engine_.allocator(geometry_, options));
    options.allocator = pages_.get();
    cache_ = must(Cache::create(geometry_, std::move(options)));
    id_ = must(cache_->add(0));
    fill_cache();
    snapshot_.emplace(must(cache_->snapshot(id_)));
    must(engine_.reserve(geometry_, {settings.tokens, settings.prefill, 1}));
    const auto began = std::chrono::steady_clock::now();
    sequence_ = must(on().bring_up(snapshot_->layer(0)));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    sent_gb_per_s_ = static_cast<double>(on().take_sent_bytes()) / seconds / 1e9;
  }

  Json report() {
    const DeviceInfo& info = device_->info();
    copy_ = copy_bandwidth();
    Json all;
    all["device"] = info.name;
    all["product"] = info.product;
    all["driver"] = info.driver;
    all["visible_tokens"] = settings_.tokens;
    all["copy_gb_per_s"] = copy_ / 1e9;
    all["sending_gb_per_s"] = sent_gb_per_s_;
    all["decode"] = step(1);
    all["prefill"] = step(settings_.prefill);
    return all;
  }

 private:
  DeviceEngine& on() { return static_cast<DeviceEngine&>(engine_.impl()); }

  void fill_cache() {
    constexpr std::int64_t kChunk = 4096;
    const std::int64_t kv = geometry_.kv_heads() * geometry_.head_dim();
    std::vector<std::uint16_t> keys, values, index_keys;
    for (std::int64_t first = 0; first < settings_.tokens; first += kChunk) {
      const std::int64_t count = std::min(kChunk, settings_.tokens - first);
      keys.resize(static_cast<std::size_t>(count * kv));
      values.resize(static_cast<std::size_t>(count * geometry_.kv_heads() * geometry_.value_dim()));
      index_keys.resize(static_cast<std::size_t>(count * geometry_.index_dim()));
      for (auto* one : {&keys, &values, &index_keys}) fill(*one, state_);
      auto transaction = must(cache_->begin());
      TokenBatch batch;
      batch.first_position = first;
      batch.keys = as_bf16(keys, {count, geometry_.kv_heads(), geometry_.head_dim()});
      batch.values = as_bf16(values, {count, geometry_.kv_heads(), geometry_.value_dim()});
      batch.index_keys = as_bf16(index_keys, {count, geometry_.index_dim()});
      must(transaction.append(id_, 0, batch));
      must(transaction.commit());
    }
  }

  // Bytes read and written per second while the device copies one buffer to another.
  double copy_bandwidth() {
    Device::Impl& driver = device_->impl();
    const std::int64_t bytes = std::int64_t{256} << 20;
    const auto from = must(driver.buffer(bytes));
    const auto to = must(driver.buffer(bytes));
    const double seconds = timed(16, [&] { return driver.driver->copy(from.get(), to.get(), bytes); });
    return 2.0 * static_cast<double>(bytes) / seconds;
  }

  // Of one launch, when `many` are enqueued before the wait.
  template <typename Launch>
  double timed(int many, const Launch& launch) {
    Device::Impl& driver = device_->impl();
    must(launch());
    must(driver.finish());
    // A slow device does not get as many.
    const double once = seconds_of(0.0, [&] {
      must(launch());
      must(driver.finish());
    });
    if (once * many > settings_.seconds) return once;
    return seconds_of(settings_.seconds,
                      [&] {
                        for (int i = 0; i < many; ++i) must(launch());
                        must(driver.finish());
                      }) /
           many;
  }

  Json kernel(double seconds, double bytes) const {
    return {{"us", seconds * 1e6}, {"gb_per_s", bytes / seconds / 1e9}, {"of_copy", bytes / seconds / copy_}};
  }

  struct Answer {
    std::vector<std::int32_t> rows, counts;
    std::vector<float> output;
    bool operator==(const Answer&) const = default;
  };

  Json step(std::int64_t queries) {
    index_queries_.resize(static_cast<std::size_t>(queries * geometry_.index_heads() * geometry_.index_dim()));
    queries_.resize(static_cast<std::size_t>(queries * geometry_.query_heads() * geometry_.head_dim()));
    fill(index_queries_, state_);
    fill(queries_, state_);
    positions_.clear();
    for (std::int64_t q = queries; q > 0; --q) positions_.push_back(settings_.tokens - q);
    Answer on_device, on_host;
    Engine host = must(Engine::host());
    run(on_device, engine_);
    run(on_host, host);
    if (on_device != on_host) stop(Status::error(Code::kCorrupt, "device", "the device's answer is not the host's"));

    Json all;
    all["queries"] = queries;
    all["kernels"] = kernels(queries, on_device);
    const double device_seconds = seconds_of(settings_.seconds, [&] { run(on_device, engine_); });
    const double host_seconds = seconds_of(settings_.seconds, [&] { run(on_host, host); });
    all["step_us"] = device_seconds * 1e6;
    all["host_step_us"] = host_seconds * 1e6;
    all["device_to_host"] = device_seconds / host_seconds;
    return all;
  }

  // The bytes are those that a query's rows and groups lie in, once per query, whatever a device's own cache keeps.
  Json kernels(std::int64_t queries, const Answer& answer) {
    DeviceWorkspace::Impl& work = on().workspace(geometry_).impl();
    const device::DeviceLayer& layer = sequence_->impl().layers[0];
    const device::Buffer& memory = sequence_->impl().memory.buffer;
    double groups = 0;
    double entries = 0;
    for (std::int64_t q = 0; q < queries; ++q) {
      groups += static_cast<double>(geometry_.groups(positions_[static_cast<std::size_t>(q)] + 1));
      entries += answer.counts[static_cast<std::size_t>(q)];
    }
    const auto each = static_cast<double>(geometry_.kv_heads() * (geometry_.head_dim() + geometry_.value_dim()) * 2);
    Json all;
    all["score"] = kernel(timed(20, [&] { return work.launch_score(layer, memory, 0, queries, false, false); }),
                          groups * static_cast<double>(geometry_.index_dim() * 2) + groups * 4);
    all["select"] = kernel(timed(20, [&] { return work.launch_select(queries, false); }), groups * 4);
    all["expand"] = kernel(timed(20, [&] { return work.launch_row(queries, layer.args); }), entries * 4);
    all["gather_attend"] = kernel(
        timed(20, [&] { return work.launch_attend(layer, memory, queries, DType::kF32, false); }), entries * each);
    return all;
  }

  void run(Answer& answer, Engine& engine) {
    const auto queries = static_cast<std::int64_t>(positions_.size());
    answer.rows.resize(static_cast<std::size_t>(queries * geometry_.row_capacity()));
    answer.counts.resize(static_cast<std::size_t>(queries));
    answer.output.resize(static_cast<std::size_t>(queries * geometry_.query_heads() * geometry_.value_dim()));
    const Rows rows{answer.rows.data(), geometry_.row_capacity(), answer.counts.data()};
    const IndexQueries index{
        as_bf16(index_queries_, {queries, geometry_.index_heads(), geometry_.index_dim()}), {}, positions_};
    const AttendQueries attending{
        as_bf16(queries_, {queries, geometry_.query_heads(), geometry_.head_dim()}), positions_, {}};
    const Tensor output = dense_view(static_cast<void*>(answer.output.data()), DType::kF32,
                                     {queries, geometry_.query_heads(), geometry_.value_dim()});
    must(engine.plan(snapshot_->layer(0), index, NanPolicy::kRefuse, rows));
    must(engine.attend(snapshot_->layer(0), attending, rows, output, {}));
  }

  const Settings settings_;
  const Geometry geometry_;
  std::shared_ptr<Device> device_;
  Engine engine_;
  std::shared_ptr<PageAllocator> pages_;
  std::unique_ptr<Cache> cache_;
  SequenceId id_ = 0;
  std::optional<Snapshot> snapshot_;
  DeviceSequence* sequence_ = nullptr;
  std::uint64_t state_ = 1;
  double copy_ = 0;
  double sent_gb_per_s_ = 0;
  std::vector<std::uint16_t> index_queries_, queries_;
  std::vector<std::int64_t> positions_;
};

}  // namespace
}  // namespace seriatim

int main(int argc, char** argv) {
  seriatim::Settings settings;
  CLI::App app("Times each kernel on a device and prints one JSON");
  app.add_option("--device", settings.device, "A name of `seriatim devices`, or opencl, or cuda")->required();
  app.add_option("--tokens", settings.tokens, "Visible tokens")
      ->check(CLI::Range(std::int64_t{4096}, std::int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--prefill", settings.prefill, "Queries of the prefill step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--seconds", settings.seconds, "Time for each measurement")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  seriatim::DeviceBench bench(settings);
  seriatim::bench::print(stdout, "{}\n", bench.report().dump(2));
}
