#include "device.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine.hpp"
#include "handles.hpp"

namespace seriatim::python {
namespace {

// What is kept ready for so many sequences; a further one replaces that which was used the longest ago, and sends all
// it has when it comes back.
constexpr std::size_t kMostSequences = 256;

struct Followed {
  DeviceSequence sequence;
  // The transaction in which the published state was followed last. A stale address costs bytes sent, nothing else.
  const TransactionHandle* transaction = nullptr;
  std::uint64_t used = 0;
};

class OnDevice final : public CacheDevice {
 public:
  OnDevice(std::shared_ptr<Device> device, std::unique_ptr<DeviceMemory> memory, const Geometry& geometry,
           std::vector<LayerParameters> layers, std::int64_t max_tokens)
      : device_(std::move(device)),
        memory_(std::move(memory)),
        geometry_(geometry),
        layers_(std::move(layers)),
        max_tokens_(max_tokens) {}

  const DeviceInfo& info() const override { return device_->info(); }
  PageAllocator* allocator() override { return memory_.get(); }

  Status plan(const LayerHandle& layer, const LayerView& view, const IndexQueries& queries, NanPolicy nan,
              Rows rows) override {
    return step(layer, view, queries.queries, [&](const DeviceSequence& sequence) {
      return workspace_->plan(sequence, layer.layer, queries, nan, rows);
    });
  }

  Status attend(const LayerHandle& layer, const LayerView& view, const AttendQueries& queries, Rows rows, Tensor output,
                Tensor lse) override {
    return step(layer, view, queries.queries, [&](const DeviceSequence& sequence) {
      return workspace_->attend(sequence, layer.layer, queries, rows, output, lse);
    });
  }

  void let_go(const Cache& cache, SequenceId sequence) override {
    const std::lock_guard turn(turn_);
    const auto found = sequences_.find(sequence);
    if (found == sequences_.end()) return;
    const auto now = cache.snapshot(sequence);
    if (!now.ok() || !found->second.sequence.follow(*now).ok()) sequences_.erase(found);  // and is sent anew
  }

 private:
  template <typename Enqueue>
  Status step(const LayerHandle& layer, const LayerView& view, const ConstTensor& queries, const Enqueue& enqueue) {
    const std::lock_guard turn(turn_);
    const Result<Followed*> followed = bring_up(layer, view);
    if (!followed.ok()) return followed.status();
    if (Status s = make_workspace(view.run.tokens, queries.empty() ? 0 : queries.shape[0]); !s.ok()) return s;
    const WorkDone before = workspace_->done();
    if (Status s = enqueue((*followed)->sequence); !s.ok()) return s;
    const Status status = workspace_->wait();
    count_work(before, workspace_->done());
    return status;
  }

  Result<Followed*> bring_up(const LayerHandle& layer, const LayerView& view) {
    auto found = sequences_.find(layer.sequence);
    if (found == sequences_.end()) {
      if (sequences_.size() == kMostSequences) {
        sequences_.erase(std::min_element(sequences_.begin(), sequences_.end(),
                                          [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
      }
      auto made = DeviceSequence::create(*memory_, geometry_, layers_, max_tokens_);
      if (!made.ok()) return made.status();
      found = sequences_.emplace(layer.sequence, Followed{*std::move(made)}).first;
    }
    Followed& to = found->second;
    to.used = ++clock_;
    if (layer.snapshot) {
      to.transaction = nullptr;
      if (Status s = to.sequence.follow(*layer.snapshot); !s.ok()) return s;
      return &to;
    }
    if (to.transaction != layer.transaction.get()) {
      const auto published = layer.cache->cache->snapshot(layer.sequence);
      if (!published.ok()) return published.status();
      if (Status s = to.sequence.follow(*published); !s.ok()) return s;
      to.transaction = layer.transaction.get();
    }
    if (Status s = to.sequence.stage(layer.layer, view); !s.ok()) return s;
    return &to;
  }

  // Powers of two, so that a sequence that grows asks for a new one rarely.
  Status make_workspace(std::int64_t tokens, std::int64_t queries) {
    if (workspace_ && tokens <= workspace_tokens_ && queries <= workspace_queries_) return {};
    const auto grown = [](std::int64_t least, std::int64_t asked) {
      return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max(least, asked))));
    };
    const std::int64_t new_tokens =
        std::min(grown(std::max<std::int64_t>(4096, workspace_tokens_), tokens), Geometry::kPositions);
    const std::int64_t new_queries = queries > 32768 ? queries : grown(workspace_queries_, queries);
    workspace_.reset();  // before the larger one, so that the device need not hold both
    workspace_tokens_ = 0;
    auto made = DeviceWorkspace::create(device_, geometry_, new_tokens, new_queries);
    if (!made.ok()) return made.status();
    workspace_.emplace(*std::move(made));
    workspace_tokens_ = new_tokens;
    workspace_queries_ = new_queries;
    return {};
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceMemory> memory_;
  const Geometry geometry_;
  const std::vector<LayerParameters> layers_;
  const std::int64_t max_tokens_;
  std::mutex turn_;
  std::unordered_map<SequenceId, Followed> sequences_;
  std::uint64_t clock_ = 0;
  std::optional<DeviceWorkspace> workspace_;
  std::int64_t workspace_tokens_ = 0;
  std::int64_t workspace_queries_ = 1;
};

}  // namespace

Result<std::unique_ptr<CacheDevice>> make_cache_device(const std::string& name, const Geometry& geometry,
                                                       const CacheOptions& options) {
  if (options.capacity_tokens <= 0) {
    return Status::error(Code::kInvalidArgument, "capacity_tokens",
                         "capacity_tokens: a cache on a device needs one, its memory is taken at once");
  }
  auto device = Device::open(name);
  if (!device.ok()) return device.status();
  const auto bytes =
      DeviceMemory::bytes_for(geometry, static_cast<std::int64_t>(options.layers.size()), options.capacity_tokens);
  if (!bytes.ok()) return bytes.status();
  auto memory = DeviceMemory::create(*device, *bytes);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<CacheDevice>(
      std::make_unique<OnDevice>(*std::move(device), *std::move(memory), geometry, options.layers,
                                 std::min(options.capacity_tokens, Geometry::kPositions)));
}

Result<std::vector<DeviceInfo>> devices() { return list_devices(); }
std::string lacks(const DeviceInfo& info) { return info.lacks(); }

}  // namespace seriatim::python
