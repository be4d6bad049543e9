// seriatim devices, and the device behind seriatim run --device.
#include "seriatim/device.hpp"

#include <optional>
#include <utility>

#include "commands.hpp"
#include "device_path.hpp"
#include "file/bytes.hpp"
#include "print.hpp"

namespace seriatim::cli {
namespace {

class DevicePath final : public ReplayPath {
 public:
  DevicePath(std::unique_ptr<DeviceMemory> memory, DeviceSequence sequence, DeviceWorkspace workspace)
      : memory_(std::move(memory)), sequence_(std::move(sequence)), workspace_(std::move(workspace)) {}

  PageAllocator* allocator() override { return memory_.get(); }
  Status begin(const Snapshot& snapshot) override { return sequence_.follow(snapshot); }
  Status plan(const IndexQueries& queries, Rows rows) override {
    if (Status s = workspace_.plan(sequence_, 0, queries, NanPolicy::kRefuse, rows); !s.ok()) return s;
    return workspace_.wait();
  }
  Status attend(const AttendQueries& queries, Rows rows, Tensor output, Tensor lse) override {
    if (Status s = workspace_.attend(sequence_, 0, queries, rows, output, lse); !s.ok()) return s;
    return workspace_.wait();
  }
  WorkDone done() const override { return workspace_.done(); }
  std::int64_t scratch_bytes() const override { return workspace_.device_bytes(); }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  DeviceSequence sequence_;
  DeviceWorkspace workspace_;
};

}  // namespace

Result<std::unique_ptr<ReplayPath>> device_path(const std::string& name, const Capture& capture) {
  auto device = Device::open(name);
  if (!device.ok()) return device.status();
  const Geometry& geometry = capture.geometry;
  const std::int64_t tokens = replay_capacity_tokens(capture);
  const auto bytes = DeviceMemory::bytes_for(geometry, 1, tokens);
  if (!bytes.ok()) return bytes.status();
  auto memory = DeviceMemory::create(*device, *bytes);
  if (!memory.ok()) return memory.status();
  LayerParameters layer;
  layer.index_norm_weight = capture.index_norm_weight;
  auto sequence = DeviceSequence::create(**memory, geometry, {layer}, tokens);
  if (!sequence.ok()) return sequence.status();
  auto workspace = DeviceWorkspace::create(*device, geometry, tokens, kReplayQueries);
  if (!workspace.ok()) return workspace.status();
  return std::unique_ptr<ReplayPath>(
      std::make_unique<DevicePath>(*std::move(memory), *std::move(sequence), *std::move(workspace)));
}

int devices() {
  const auto found = list_devices();
  if (!found.ok()) return refuse(found.status());
  if (found->empty()) print("no device (OpenCL and CUDA were asked; pocl-opencl-icd has a driver for any CPU)\n");
  for (const DeviceInfo& one : *found) {
    const auto line = [](std::string_view name, const std::string& value) { print("  {:<26}{}\n", name, value); };
    const auto promise = [&](std::string_view name, bool kept) { line(name, kept ? "yes" : "no"); };
    print("{}  {}\n", one.name, file::printable(one.product));
    line("driver", file::printable(one.driver));
    line("memory", formatted("{} MiB, {} MiB in one piece", one.memory_bytes >> 20, one.largest_buffer_bytes >> 20));
    promise("fused multiply-add", one.fma);
    promise("division, square root", one.division);
    promise("subnormals", one.subnormals);
    promise("rounding to nearest", one.rounds);
    promise("double precision", one.doubles);
    const std::string lacks = one.lacks();
    line("the library's bits", lacks.empty() ? "yes" : "refused: it does not promise " + lacks);
  }
  return kAgrees;
}

}  // namespace seriatim::cli
