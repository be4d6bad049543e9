#include <limits>

#include "base/format.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"
#include "layer.hpp"
#include "seriatim/borrow.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

constexpr std::uintptr_t kPanelAlignment = 64;

Status take_pages(const char* name, const void* const* given, std::int64_t count,
                  std::span<const std::byte* const>& taken) {
  return take_array(name, reinterpret_cast<const std::byte* const*>(given), count, taken);
}

Status take_vectors(const seriatim_borrowed_tensors& from, BorrowedTensors& to) {
  if (Status s = take_pages("key_pages", from.key_pages, from.key_page_count, to.key_pages); !s.ok()) return s;
  if (Status s = take_pages("value_pages", from.value_pages, from.value_page_count, to.value_pages); !s.ok()) return s;
  const auto take = to.key_pages.empty()
                        ? static_cast<Status (*)(const char*, const seriatim_tensor*, ConstTensor&)>(take_tensor)
                        : take_layout;
  if (from.keys != nullptr) {
    if (Status s = take("keys", from.keys, to.keys); !s.ok()) return s;
  }
  if (from.values != nullptr) {
    if (Status s = take("values", from.values, to.values); !s.ok()) return s;
  }
  return take_tensor_or_null("block_table", from.block_table, to.block_table);
}

// Takes   index: where the view of another layer's index may lie
Status take_tensors(const seriatim_borrowed_tensors& from, LayerView& index, BorrowedTensors& to) {
  if (Status s = check_reserved("tensors", from.reserved); !s.ok()) return s;
  if (Status s = take_vectors(from, to); !s.ok()) return s;
  if (Status s = take_tensor_or_null("panels", from.panels, to.panels); !s.ok()) return s;
  to.first_slot = from.first_slot;
  to.first_group = from.first_group;
  to.panels_max_abs = from.panels_max_abs;
  if (from.index == nullptr) return {};
  const auto view = take_layer(from.index);
  if (!view.ok()) return view.status();
  index = *view;
  to.index = &index;
  return {};
}

Status check_groups(const Geometry& geometry, std::int64_t groups) {
  if (groups >= 0 && groups <= Geometry::kPositions / geometry.key_tokens()) return {};
  return invalid("groups",
                 formatted("{} are not in 0..{}", groups, Geometry::kPositions / geometry.key_tokens()).c_str());
}

}  // namespace

void seriatim_borrowed_tensors_init(seriatim_borrowed_tensors* tensors) {
  if (tensors == nullptr) return;
  *tensors = {};
  tensors->struct_size = sizeof *tensors;
  tensors->panels_max_abs = std::numeric_limits<float>::infinity();
}

seriatim_status seriatim_borrowed_create(const seriatim_geometry* geometry, seriatim_borrowed** borrowed,
                                         seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"borrowed", borrowed}}); !s.ok()) return s;
    *borrowed = new seriatim_borrowed(geometry->geometry);
    return {};
  });
}

seriatim_status seriatim_borrowed_bind(seriatim_borrowed* borrowed, std::int64_t anchor, std::int64_t tokens,
                                       const seriatim_borrowed_tensors* tensors, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"borrowed", borrowed}}); !s.ok()) return s;
    seriatim_borrowed_tensors given;
    seriatim_borrowed_tensors_init(&given);
    if (Status s = take_struct("tensors", tensors, given); !s.ok()) return s;
    LayerView index;
    BorrowedTensors taken;
    if (Status s = take_tensors(given, index, taken); !s.ok()) return s;
    if (Status s = borrowed->layer.bind({anchor, tokens}, taken); !s.ok()) return s;
    borrowed->index.reset();
    if (given.index != nullptr && given.index->snapshot != nullptr) borrowed->index.emplace(*given.index->snapshot);
    return {};
  });
}

void seriatim_borrowed_destroy(seriatim_borrowed* borrowed) { delete borrowed; }

seriatim_status seriatim_panels_bytes(const seriatim_geometry* geometry, std::int64_t groups, std::int64_t* bytes,
                                      seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"bytes", bytes}}); !s.ok()) return s;
    if (Status s = check_groups(geometry->geometry, groups); !s.ok()) return s;
    *bytes = panel_bytes(geometry->geometry, groups);
    return {};
  });
}

seriatim_status seriatim_pack_panels(const seriatim_geometry* geometry, const seriatim_tensor* pooled, void* panels,
                                     std::int64_t panels_bytes, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}}); !s.ok()) return s;
    ConstTensor keys;
    std::span<std::byte> room;
    if (Status s = take_tensor("pooled", pooled, keys); !s.ok()) return s;
    if (Status s = take_array("panels", static_cast<std::byte*>(panels), panels_bytes, room); !s.ok()) return s;
    if (reinterpret_cast<std::uintptr_t>(panels) % kPanelAlignment != 0)
      return invalid("panels", "not 64-byte aligned");
    const std::int64_t groups = keys.rank > 0 ? keys.shape[0] : 0;
    if (Status s = check_groups(geometry->geometry, groups); !s.ok()) return s;
    const std::int64_t needed = panel_bytes(geometry->geometry, groups);
    if (panels_bytes < needed)
      return invalid("panels", formatted("{} bytes where {} are needed", panels_bytes, needed).c_str());
    return pack_pooled_keys(geometry->geometry, keys, room.data());
  });
}
