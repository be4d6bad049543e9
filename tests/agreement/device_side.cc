#include "agreement/device_side.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "device/engine.hpp"
#ifdef SERIATIM_EMULATED_CUDA
#include "device/emulated/cuda.hpp"
#endif

namespace seriatim::agreement {
namespace {

constexpr std::int64_t kMostQueries = 32;

// One device per backend and work-group size, so that its kernels are built once.
Result<std::shared_ptr<Device>> device_of(const DeviceWay& way) {
  static std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<Device>> opened;
  auto& device = opened[{way.backend, way.work_group}];
  if (device != nullptr) return device;
#ifdef SERIATIM_EMULATED_CUDA
  auto made = way.backend == "emulated" ? testing::open_emulated(way.work_group)
                                        : Device::open(way.backend, {.work_group = way.work_group});
#else
  auto made = Device::open(way.backend, {.work_group = way.work_group});
#endif
  if (!made.ok()) return made.status();
  device = *std::move(made);
  return device;
}

ConstTensor part(ConstTensor batch, std::int64_t first, std::int64_t count) {
  if (batch.empty()) return batch;
  batch.data = batch.at(first);
  batch.shape[0] = count;
  return batch;
}

Tensor part(Tensor batch, std::int64_t first, std::int64_t count) {
  batch.data = batch.at(first);
  batch.shape[0] = count;
  return batch;
}

class Side final : public DeviceSide {
 public:
  Side(const Problem& problem, std::shared_ptr<Device> device)
      : geometry_(problem.geometry), device_(std::move(device)) {}

  Status prepare(const Problem& problem) {
    auto engine = Engine::on(device_);
    if (!engine.ok()) return engine.status();
    engine_.emplace(*std::move(engine));
    CacheOptions options;
    options.layers[0].index_norm_weight = problem.norm_weight;
    // Whatever size its pages will have.
    options.capacity_tokens = problem.tokens() + 64 * 16 * geometry_.group_tokens();
    auto pages = engine_->allocator(geometry_, options);
    if (!pages.ok()) return pages.status();
    pages_ = *std::move(pages);
    return engine_->reserve(geometry_, {problem.tokens(), kMostQueries, 1});
  }

  PageAllocator& allocator() override { return *pages_; }
  Status stage(const LayerView& layer) override {
    layer_ = layer;
    return {};
  }

  Result<std::vector<std::vector<float>>> scores(const IndexQueries& queries) override {
    std::vector<std::vector<float>> all;
    std::vector<std::int32_t> rows(static_cast<std::size_t>(kMostQueries * geometry_.row_capacity()));
    std::vector<std::int32_t> counts(static_cast<std::size_t>(kMostQueries));
    const auto count = static_cast<std::int64_t>(queries.positions.size());
    for (std::int64_t first = 0; first < count; first += kMostQueries) {
      const IndexQueries some = queries_from(queries, first, count);
      // NaN excluded: so every query is scored, also where the row is known without.
      if (Status s =
              engine_->plan(layer_, some, NanPolicy::kExclude, {rows.data(), geometry_.row_capacity(), counts.data()});
          !s.ok())
        return s;
      DeviceWorkspace::Impl& work = on().workspace(geometry_).impl();
      std::vector<float> read(some.positions.size() * static_cast<std::size_t>(work.score_stride));
      if (Status s = device_->impl().read(work.scores, read.data(), static_cast<std::int64_t>(read.size()) * 4);
          !s.ok())
        return s;
      if (Status s = device_->impl().finish(); !s.ok()) return s;
      for (std::size_t q = 0; q < some.positions.size(); ++q) {
        const float* own = read.data() + static_cast<std::int64_t>(q) * work.score_stride;
        all.emplace_back(own, own + geometry_.groups(work.host_visible[q]));
      }
    }
    return all;
  }

  Status ask(const IndexQueries& index, const AttendQueries& queries, Rows rows, Tensor output, Tensor lse) override {
    const auto count = static_cast<std::int64_t>(index.positions.size());
    for (std::int64_t first = 0; first < count; first += kMostQueries) {
      const IndexQueries some = queries_from(index, first, count);
      const auto size = static_cast<std::int64_t>(some.positions.size());
      const Rows to{rows.positions + first * rows.stride, rows.stride, rows.counts + first};
      if (Status s = engine_->plan(layer_, some, NanPolicy::kRefuse, to); !s.ok()) return s;
      const AttendQueries attending{part(queries.queries, first, size), some.positions, queries.sinks};
      if (Status s = engine_->attend(layer_, attending, to, part(output, first, size), part(lse, first, size)); !s.ok())
        return s;
    }
    return {};
  }

  Result<std::vector<std::byte>> pooled(const Snapshot& snapshot) override {
    const auto sequence = on().bring_up(snapshot.layer(0));
    if (!sequence.ok()) return sequence.status();
    DeviceMemory::Impl& memory = (*sequence)->impl().memory;
    std::vector<std::byte> all(static_cast<std::size_t>(memory.buffer.bytes()));
    if (Status s = device_->impl().read(memory.buffer, all.data(), memory.buffer.bytes()); !s.ok()) return s;
    if (Status s = device_->impl().finish(); !s.ok()) return s;
    const PooledKeys keys = snapshot.layer(0).pooled;
    const std::int64_t element = dtype_bytes(keys.dtype);
    std::vector<std::byte> dense(static_cast<std::size_t>(keys.groups * keys.dim * element));
    for (std::int64_t group = 0; group < keys.groups; ++group) {
      for (std::int64_t i = 0; i < keys.dim; ++i) {
        const std::int64_t at = *memory.place_of(keys.group(group)) + i * PooledKeys::kPanelGroups * element;
        std::memcpy(dense.data() + (group * keys.dim + i) * element, all.data() + at,
                    static_cast<std::size_t>(element));
      }
    }
    return dense;
  }

 private:
  DeviceEngine& on() { return static_cast<DeviceEngine&>(engine_->impl()); }

  IndexQueries queries_from(const IndexQueries& all, std::int64_t first, std::int64_t count) const {
    const std::int64_t size = std::min(kMostQueries, count - first);
    return {part(all.queries, first, size), part(all.head_weights, first, size),
            all.positions.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size))};
  }

  const Geometry& geometry_;
  std::shared_ptr<Device> device_;
  std::optional<Engine> engine_;
  std::shared_ptr<PageAllocator> pages_;
  LayerView layer_;  // what was staged last
};

}  // namespace

std::vector<std::string> device_backends() {
  std::vector<std::string> usable;
  const auto found = list_devices();
  for (const std::string backend : {"opencl", "cuda"}) {
    const auto keeps_bits = [&](const DeviceInfo& one) {
      return one.name.starts_with(backend + ":") && one.lacks().empty();
    };
    if (found.ok() && std::ranges::any_of(*found, keeps_bits)) usable.push_back(backend);
  }
#ifdef SERIATIM_EMULATED_CUDA
  usable.push_back("emulated");
#endif
  return usable;
}

std::string device_products() {
  std::string names;
  for (const std::string& backend : device_backends()) {
    const auto device = device_of({backend, backend == "emulated" ? 4 : 128});
    if (!device.ok()) continue;  // the case then says why
    names += (names.empty() ? "" : ", ") + (*device)->info().name + " (" + (*device)->info().product + ")";
  }
  return names;
}

Result<std::unique_ptr<DeviceSide>> make_device_side(const DeviceWay& way, const Problem& problem) {
  const auto device = device_of(way);
  if (!device.ok()) return device.status();
  auto side = std::make_unique<Side>(problem, *device);
  if (Status s = side->prepare(problem); !s.ok()) return s;
  return std::unique_ptr<DeviceSide>(std::move(side));
}

}  // namespace seriatim::agreement
