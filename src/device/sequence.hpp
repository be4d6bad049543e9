// One sequence of a cache as the device sees it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/memory.hpp"
#include "seriatim/cache.hpp"

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

// One sequence of a cache as the device sees it.
class DeviceSequence {
 public:
  // Takes   the geometry, layers and largest length of the sequence; all memory is taken here.
  //         `memory` outlives the sequence.
  // Errors  InvalidArgument. Unsupported: the kernels do not build (the message ends with the driver's log).
  //         OutOfMemory, Io.
  static Result<DeviceSequence> create(DeviceMemory& memory, const Geometry& geometry,
                                       const std::vector<LayerParameters>& layers, std::int64_t max_tokens);
  DeviceSequence(DeviceSequence&&) noexcept;
  DeviceSequence& operator=(DeviceSequence&&) noexcept;
  ~DeviceSequence();

  // Sends what the device lacks of a published state and, on success, holds that state in place of the last one.
  // Whatever came between (append, truncate, evict, fork, copy, restore) only decides how much is sent.
  // Errors  InvalidArgument: a layer or page that is not of this memory. Capacity: more than max_tokens. OutOfMemory,
  //         Io: the driver; the state that was held is held still.
  Status follow(const Snapshot& snapshot);
  // Starts from what `other`, a sequence of the same memory, holds: a fork sends nothing that its parent sent.
  void share(const DeviceSequence& other);

  // Sends the staged tokens of one layer beside what is held. They serve the next steps until another stage() or
  // follow(); the transaction stays open and unchanged until wait(). Errors as follow.
  Status stage(std::int64_t layer, const LayerView& staged);

  // Bytes sent since the last call.
  std::int64_t take_sent_bytes();

  struct Impl;  // opaque
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  explicit DeviceSequence(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

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
  bool staged = false;  // some layer shows staged tokens instead
  std::int64_t held_epoch = -1;
  std::int64_t sent_bytes = 0;

  // Whether what was sent is to be relied on.
  bool holds() const { return held && held_epoch == memory.device->impl().epoch; }

 private:
  Device::Impl& driver() { return memory.device->impl(); }
  Status admit(std::int64_t layer, const LayerView& view) const;
  Status send_tokens(const LayerView& view, std::int64_t from);
  Status send_keys_values(const std::byte* page, std::int64_t groups, std::int64_t slot, std::int64_t count);
  Status send_block(const std::byte* page, std::int64_t offset, std::int64_t bytes);
  Status send_finished_groups(const LayerView& view, std::int64_t from);
  Status send_table(device::PageTable& table, const std::byte* const* pages, std::int64_t count);
};

}  // namespace seriatim
