#include "device/sequence.hpp"

#include <algorithm>
#include <new>

#include "base/checked.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "cache/group_block.hpp"

namespace seriatim {
namespace device {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

std::int64_t pages_of(std::int64_t first_slot, std::int64_t slots, std::int64_t page_slots) {
  return slots == 0 ? 0 : (first_slot + slots + page_slots - 1) / page_slots;
}

// How far the slots that follow `first` in one table are those that follow `other_first` in another.
std::int64_t same_slots(const std::byte* const* pages, std::int64_t first, const std::byte* const* other,
                        std::int64_t other_first, std::int64_t slots, std::int64_t page_slots) {
  if (first % page_slots != other_first % page_slots) return 0;
  std::int64_t same = 0;
  while (same < slots && pages[(first + same) / page_slots] == other[(other_first + same) / page_slots]) {
    same = std::min(slots, same + page_slots - (first + same) % page_slots);
  }
  return same;
}

}  // namespace

std::int64_t held_tokens(const LayerView& view, const LayerView& held) {
  const std::int64_t moved = view.run.anchor - held.run.anchor;
  if (moved < 0 || moved >= held.run.tokens) return 0;
  return same_slots(view.pages, view.first_slot, held.pages, held.first_slot + moved,
                    std::min(view.run.tokens, held.run.tokens - moved), view.page_tokens);
}

std::int64_t held_groups(const LayerView& view, const LayerView& held) {
  const std::int64_t r = view.geometry->group_tokens();
  const std::int64_t moved = view.run.anchor - held.run.anchor;
  if (moved < 0 || moved % r != 0 || moved / r >= held.pooled.groups) return 0;
  return same_slots(view.pooled.pages, view.pooled.first_slot, held.pooled.pages, held.pooled.first_slot + moved / r,
                    std::min(view.pooled.groups, held.pooled.groups - moved / r), view.pooled.page_groups);
}

}  // namespace device

namespace {

using device::PageTable;

Status invalid(std::string_view argument, std::string_view what, Place place = {}) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), place);
}

Result<PageTable> make_table(Device::Impl& driver, std::int64_t pages) {
  PageTable table;
  auto buffer = driver.buffer(pages * 8);
  if (!buffer.ok()) return buffer.status();
  table.buffer = std::move(*buffer);
  table.places.reserve(static_cast<std::size_t>(pages));
  return table;
}

}  // namespace

Status DeviceSequence::Impl::prepare(const std::vector<LayerParameters>& parameters, std::int64_t most) {
  if (parameters.empty()) return invalid("layers", "there is none");
  if (most < 0 || most > Geometry::kPositions)
    return invalid("max_tokens", formatted("{} is not in 0..{}", most, Geometry::kPositions));
  max_tokens = most;
  auto built = driver().program(geometry);
  if (!built.ok()) return built.status();
  program = *built;
  // Pages hold 16 groups at least; one more at either end, where the first slot is not the first of its page.
  const std::int64_t pages = most / (device::kPanel * geometry.group_tokens()) + 2;
  const auto upload = [&](device::Buffer& to, const void* from, std::size_t bytes) -> Status {
    auto buffer = driver().buffer(static_cast<std::int64_t>(bytes));
    if (!buffer.ok()) return buffer.status();
    to = std::move(*buffer);
    return driver().write(to, 0, from, static_cast<std::int64_t>(bytes));
  };
  if (Status s = upload(inv_freq, geometry.inv_freq().data(), geometry.inv_freq().size_bytes()); !s.ok()) return s;
  if (Status s = upload(axes, geometry.rope_axes().data(), geometry.rope_axes().size_bytes()); !s.ok()) return s;
  const std::vector<float> zeros(static_cast<std::size_t>(geometry.index_dim()));
  layers.resize(parameters.size());
  for (std::size_t l = 0; l < parameters.size(); ++l) {
    layers[l].indexed = parameters[l].indexed;
    const std::vector<float>& weight =
        parameters[l].index_norm_weight.empty() ? zeros : parameters[l].index_norm_weight;
    if (weight.size() != zeros.size()) {
      return invalid("index_norm_weight",
                     formatted("layer {} has {} entries for {} dims", l, weight.size(), zeros.size()),
                     {static_cast<std::int64_t>(l), -1});
    }
    if (Status s = upload(layers[l].norm_weight, weight.data(), weight.size() * sizeof(float)); !s.ok()) return s;
    for (device::LayerTables& tables : layers[l].tables) {
      for (PageTable* table : {&tables.tokens, &tables.groups}) {
        auto made = make_table(driver(), pages);
        if (!made.ok()) return made.status();
        *table = std::move(*made);
      }
    }
  }
  return driver().finish();  // before what was written from is gone
}

Status DeviceSequence::Impl::admit(std::int64_t layer, const LayerView& view) const {
  if (layer < 0 || layer >= static_cast<std::int64_t>(layers.size())) {
    return invalid("layer", formatted("{} is not in 0..{}", layer, layers.size() - 1), {-1, layer});
  }
  if (view.run.tokens > max_tokens) {
    return Status::error(Code::kCapacity, "sequence",
                         formatted("sequence: {} tokens, made for {}", view.run.tokens, max_tokens));
  }
  const std::int64_t tokens = device::pages_of(view.first_slot, view.run.tokens, view.page_tokens);
  const std::int64_t groups = device::pages_of(view.pooled.first_slot, view.pooled.groups, view.pooled.page_groups);
  const auto foreign = [&](const std::byte* page) { return !memory.place_of(page); };
  if (std::any_of(view.pages, view.pages + tokens, foreign) ||
      std::any_of(view.pooled.pages, view.pooled.pages + groups, foreign)) {
    return invalid("layer", "a page is not of this device memory (a file that was mapped, or another cache)",
                   {-1, layer});
  }
  const auto capacity =
      static_cast<std::int64_t>(layers[static_cast<std::size_t>(layer)].in_use().tokens.places.capacity());
  if (std::max(tokens, groups) > capacity) {
    return Status::error(Code::kCapacity, "sequence",
                         formatted("sequence: {} pages, made for {}", std::max(tokens, groups), capacity));
  }
  return {};
}

Status DeviceSequence::Impl::send_block(const std::byte* page, std::int64_t offset, std::int64_t bytes) {
  sent_bytes += bytes;
  return driver().write(memory.buffer, *memory.place_of(page) + offset, page + offset, bytes);
}

// Keys and values of slots of one page that follow each other: whole blocks at once, else a head's keys and values.
Status DeviceSequence::Impl::send_keys_values(const std::byte* page, std::int64_t groups, std::int64_t slot,
                                              std::int64_t count) {
  const GroupBlock block = GroupBlock::of(geometry);
  for (const std::int64_t end = slot + count; slot < end;) {
    const std::int64_t in_block = slot % block.tokens;
    const std::int64_t blocks = in_block == 0 ? (end - slot) / block.tokens : 0;
    if (blocks > 0) {
      if (Status s = send_block(page, groups + block.key_at(slot, 0), blocks * block.bytes); !s.ok()) return s;
      slot += blocks * block.tokens;
      continue;
    }
    const std::int64_t part = std::min(block.tokens - in_block, end - slot);
    for (std::int64_t head = 0; head < geometry.kv_heads(); ++head) {
      if (Status s = send_block(page, groups + block.key_at(slot, head), part * block.key_bytes); !s.ok()) return s;
      if (geometry.values_alias_keys()) continue;
      if (Status s = send_block(page, groups + block.value_at(slot, head), part * block.value_bytes); !s.ok()) return s;
    }
    slot += part;
  }
  return {};
}

Status DeviceSequence::Impl::send_tokens(const LayerView& view, std::int64_t from) {
  const std::int64_t raw_bytes = row_bytes(geometry.index_dtype(), geometry.index_dim());
  for (std::int64_t token = from; token < view.run.tokens;) {
    const std::int64_t slot = (view.first_slot + token) % view.page_tokens;
    const std::int64_t count = std::min(view.page_tokens - slot, view.run.tokens - token);
    const std::byte* page = view.pages[(view.first_slot + token) / view.page_tokens];
    if (Status s = send_keys_values(page, view.key_offset_bytes, slot, count); !s.ok()) return s;
    if (view.raw_offset_bytes >= 0) {
      if (Status s = send_block(page, view.raw_offset_bytes + slot * raw_bytes, count * raw_bytes); !s.ok()) return s;
    }
    if (view.coordinates_offset_bytes >= 0) {
      constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Coordinates));
      if (Status s = send_block(page, view.coordinates_offset_bytes + slot * kBytes, count * kBytes); !s.ok()) return s;
    }
    token += count;
  }
  return {};
}

// Keys that arrived finished stand in panels, of which whole ones are sent.
Status DeviceSequence::Impl::send_finished_groups(const LayerView& view, std::int64_t from) {
  const std::int64_t panel_size = panel_bytes(geometry, device::kPanel);
  for (std::int64_t group = from; group < view.pooled.groups;) {
    const std::int64_t slot = view.pooled.first_slot + group;
    const std::int64_t in_page = slot % view.pooled.page_groups;
    const std::byte* page = view.pooled.pages[slot / view.pooled.page_groups];
    if (Status s = send_block(page, view.pooled.offset_bytes + in_page / device::kPanel * panel_size, panel_size);
        !s.ok())
      return s;
    group += device::kPanel - in_page % device::kPanel;
  }
  return {};
}

Status DeviceSequence::Impl::send_table(PageTable& table, const std::byte* const* pages, std::int64_t count) {
  const auto place = [&](std::int64_t i) { return *memory.place_of(pages[i]); };
  std::int64_t same = 0;
  while (same < std::min(count, table.sent) && table.places[static_cast<std::size_t>(same)] == place(same)) ++same;
  if (same == count) return {};
  // An entry that a write may still be reading must not change under it.
  if (same < table.sent) {
    if (Status s = driver().finish(); !s.ok()) return s;
  }
  table.sent = same;
  table.places.resize(static_cast<std::size_t>(count));  // within its capacity
  for (std::int64_t i = same; i < count; ++i) table.places[static_cast<std::size_t>(i)] = place(i);
  if (Status s = driver().write(table.buffer, same * 8, table.places.data() + same, (count - same) * 8); !s.ok())
    return s;
  sent_bytes += (count - same) * 8;
  table.sent = count;
  return {};
}

Status DeviceSequence::Impl::send(std::int64_t layer, const LayerView& view) {
  if (Status s = admit(layer, view); !s.ok()) return s;
  device::DeviceLayer& to = layers[static_cast<std::size_t>(layer)];
  const LayerView before = holds() ? held->layer(layer) : LayerView{};
  const std::int64_t tokens = holds() ? device::held_tokens(view, before) : 0;
  const std::int64_t groups = holds() ? device::held_groups(view, before) : 0;
  device::LayerTables& tables = to.spare();
  if (held_epoch != driver().epoch) tables.tokens.sent = tables.groups.sent = 0;
  if (Status s = send_tokens(view, tokens); !s.ok()) return s;
  if (Status s =
          send_table(tables.tokens, view.pages, device::pages_of(view.first_slot, view.run.tokens, view.page_tokens));
      !s.ok())
    return s;
  const std::int64_t pooled_pages =
      device::pages_of(view.pooled.first_slot, view.pooled.groups, view.pooled.page_groups);
  if (Status s = send_table(tables.groups, view.pooled.pages, pooled_pages); !s.ok()) return s;
  const device::LayerArgs args = device::layer_args(view);
  if (geometry.pooling() == Pooling::kNone) {
    if (Status s = send_finished_groups(view, groups); !s.ok()) return s;
  } else {
    const std::int64_t new_groups = view.pooled.groups - groups;
    if (Status s =
            driver().launch(*program, device::Kernel::kPool, {device::groups_of(new_groups, driver().work_group)},
                            memory.buffer, tables.tokens.buffer, tables.groups.buffer, to.norm_weight, inv_freq, axes,
                            args, shape, groups, new_groups);
        !s.ok()) {
      return s;
    }
  }
  to.args = args;
  to.run = view.run;
  to.current = 1 - to.current;
  return {};
}

Result<DeviceSequence> DeviceSequence::create(DeviceMemory& memory, const Geometry& geometry,
                                              const std::vector<LayerParameters>& layers, std::int64_t max_tokens) {
  DefaultFloatEnvironment environment;
  try {
    auto impl = std::make_unique<Impl>(memory, geometry);
    if (Status s = impl->prepare(layers, max_tokens); !s.ok()) return s;
    return DeviceSequence(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "sequence", "sequence: the system refused memory");
  }
}

DeviceSequence::DeviceSequence(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceSequence::DeviceSequence(DeviceSequence&&) noexcept = default;
DeviceSequence& DeviceSequence::operator=(DeviceSequence&&) noexcept = default;
DeviceSequence::~DeviceSequence() = default;

Status DeviceSequence::follow(const Snapshot& snapshot) {
  DefaultFloatEnvironment environment;
  Device::Impl& driver = impl_->memory.device->impl();
  if (snapshot.layers() != static_cast<std::int64_t>(impl_->layers.size())) {
    return invalid("snapshot", formatted("{} layers where {} are due", snapshot.layers(), impl_->layers.size()));
  }
  for (std::int64_t layer = 0; layer < snapshot.layers(); ++layer) {
    if (Status s = impl_->send(layer, snapshot.layer(layer)); !s.ok()) return s;
  }
  if (Status s = driver.finish(); !s.ok()) return s;
  impl_->held = snapshot;
  impl_->held_epoch = driver.epoch;
  impl_->staged = false;
  return {};
}

void DeviceSequence::share(const DeviceSequence& other) {
  impl_->held = other.impl_->held;
  impl_->held_epoch = other.impl_->held_epoch;
  for (device::DeviceLayer& layer : impl_->layers)
    layer.tables[0].tokens.sent = layer.tables[0].groups.sent = layer.tables[1].tokens.sent =
        layer.tables[1].groups.sent = 0;
}

Status DeviceSequence::stage(std::int64_t layer, const LayerView& staged) {
  DefaultFloatEnvironment environment;
  impl_->staged = true;
  return impl_->send(layer, staged);
}

std::int64_t DeviceSequence::take_sent_bytes() { return std::exchange(impl_->sent_bytes, 0); }

}  // namespace seriatim
