// The engine on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/memory.hpp"
#include "device/sequence.hpp"
#include "device/workspace.hpp"
#include "step/engine.hpp"

namespace seriatim {

// What the device holds of sequences is looked up by the state that a layer's view shows. A state that it does not hold
// is sent beside what it shares with those that are held: in the place of the one that it grew from, where nobody else
// holds that any more, else (a fork, an older snapshot) as a sequence of its own.
class DeviceEngine final : public Engine::Impl {
 public:
  explicit DeviceEngine(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  Result<std::shared_ptr<PageAllocator>> allocator(const Geometry& geometry, const CacheOptions& options) override;
  void let_go() override;

  // Brings the device up to the view. The sequence is valid until the next call.
  // Errors  InvalidArgument: borrowed memory, or pages of another. Capacity, OutOfMemory, Unsupported, Io.
  // Throws bad_alloc.
  Result<DeviceSequence*> bring_up(const LayerView& view);
  std::int64_t take_sent_bytes();
  DeviceWorkspace& workspace(const Geometry& geometry) { return find(geometry)->workspace; }

 protected:
  Result<std::int64_t> scratch_bytes_for(const Geometry& geometry, const StepLimits& limits) const override;
  std::int64_t scratch_bytes() const override;
  bool holds(const Geometry& geometry, const StepLimits& needed) const override;
  Status take(const Geometry& geometry, const StepLimits& limits) override;
  Executor& executor() override { return serial_executor(); }
  Status run(const PlanBatch& batch) override;
  Status run(const AttendBatch& batch) override;
  Status run(const PartialBatch& batch) override;
  Status run(const FoldBatch& batch) override;

 private:
  // What is kept ready for so many sequences; a further one replaces that which was used the longest ago, and sends all
  // it has when it comes back.
  static constexpr std::size_t kMostSequences = 256;

  struct Followed {
    std::shared_ptr<DeviceMemory> memory;  // first, so that it goes last
    DeviceSequence sequence;
    std::uint64_t used = 0;
  };

  struct Work {
    DeviceWorkspace workspace;
    StepLimits limits;
  };

  Status admit_count(const AskTable& table) const;
  Work* find(const Geometry& geometry) const;
  std::shared_ptr<DeviceMemory> memory_of(const LayerView& view);
  Result<Followed*> find_or_make(const LayerView& view, const std::shared_ptr<DeviceMemory>& memory);
  Result<Followed*> make(const SequenceState& state, const std::shared_ptr<DeviceMemory>& memory);

  std::shared_ptr<Device> device_;
  std::vector<std::weak_ptr<DeviceMemory>> memories_;
  std::vector<std::unique_ptr<Followed>> followed_;
  std::uint64_t clock_ = 0;
  std::vector<std::unique_ptr<Work>> work_;  // one per geometry
};

}  // namespace seriatim
