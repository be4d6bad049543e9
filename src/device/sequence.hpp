// What DeviceSequence holds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/memory.hpp"

namespace seriatim {

namespace device {

// Where pages lie, on the device and here; the host's entries are written to the device as they are.
struct PageTable {
  Buffer buffer;
  std::vector<std::int64_t> places;  // its capacity never grows: a write may still be reading it
  std::int64_t sent = 0;             // so many entries are on the device
};

struct LayerTables {
  PageTable tokens;
  PageTable groups;
};

struct DeviceLayer {
  bool indexed = true;
  Buffer norm_weight;
  // The tables that steps read, and those that the next stage() writes: a failure leaves the first as they are.
  std::array<LayerTables, 2> tables;
  int current = 0;
  LayerArgs args{};
  VisibleRun run;

  const LayerTables& in_use() const { return tables[static_cast<std::size_t>(current)]; }
  LayerTables& spare() { return tables[static_cast<std::size_t>(1 - current)]; }
};

// How many leading tokens (or groups) of `view` lie where `held` has them.
std::int64_t held_tokens(const LayerView& view, const LayerView& held);
std::int64_t held_groups(const LayerView& view, const LayerView& held);

}  // namespace device

struct DeviceSequence::Impl {
  Impl(DeviceMemory& m, const Geometry& g) : memory(m.impl()), geometry(g), shape(device::shape_args(g)) {}

  Status prepare(const std::vector<LayerParameters>& parameters, std::int64_t max_tokens);
  // Sends what the layer lacks beside what is held. The layer's state changes only on success.
  Status send(std::int64_t layer, const LayerView& view);

  DeviceMemory::Impl& memory;
  const Geometry geometry;
  const device::ShapeArgs shape;
  const device::Program* program = nullptr;
  std::int64_t max_tokens = 0;
  device::Buffer inv_freq;
  device::Buffer axes;
  std::vector<device::DeviceLayer> layers;
  std::optional<Snapshot> held;
  std::int64_t held_epoch = -1;
  std::int64_t sent_bytes = 0;

 private:
  Device::Impl& driver() { return memory.device->impl(); }
  bool holds() const { return held && held_epoch == memory.device->impl().epoch; }
  Status admit(std::int64_t layer, const LayerView& view) const;
  Status send_tokens(const LayerView& view, std::int64_t from);
  Status send_block(const std::byte* page, std::int64_t offset, std::int64_t bytes);
  Status send_finished_groups(const LayerView& view, std::int64_t from);
  Status send_table(device::PageTable& table, const std::byte* const* pages, std::int64_t count);
};

}  // namespace seriatim
