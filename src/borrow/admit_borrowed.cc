#include "borrow/admit_borrowed.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "base/admit.hpp"
#include "base/checked.hpp"
#include "base/format.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

Status invalid(std::string_view argument, std::string_view what, std::int64_t index = -1) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), {-1, index});
}

using Form = Borrowing::Form;

bool given(const ConstTensor& tensor) { return tensor.rank != 0; }

// Whether the tensor is laid out as its form demands. Gives where tokens and heads step.
Result<VectorStrides> admit_vectors(std::string_view name, ConstTensor view, const Geometry& geometry, std::int64_t dim,
                                    Form form) {
  if (form == Form::kAddresses) view.data = reinterpret_cast<const std::byte*>(&geometry);  // not looked at
  const std::int64_t heads = geometry.kv_heads();
  const DType dtype = geometry.kv_dtype();
  const Status fits = form == Form::kPool ? admit_view(name, view, dtype, {-1, -1, heads, dim})
                                          : admit_view(name, view, dtype, {-1, heads, dim});
  if (!fits.ok()) return fits;
  const auto last = static_cast<std::size_t>(view.rank - 1);
  if (dim > 1 && view.stride_bytes[last] != dtype_bytes(dtype)) {
    return invalid(name,
                   formatted("axis {} has a stride of {} bytes: the elements of a vector are not neighbours", last,
                             view.stride_bytes[last]),
                   view.rank - 1);
  }
  const int axis = overlapping_axis(view);
  if (axis >= 0) {
    return invalid(name,
                   formatted("axis {} has a stride of {} bytes, so that two vectors share memory", axis,
                             view.stride_bytes[static_cast<std::size_t>(axis)]),
                   axis);
  }
  return VectorStrides{view.stride_bytes[last - 2], view.stride_bytes[last - 1]};
}

std::int64_t tokens_axis(Form form) { return form == Form::kPool ? 1 : 0; }

Result<Borrowing> admit_reach(VisibleRun run, const BorrowedTensors& tensors) {
  Borrowing reach;
  const bool addressed = !tensors.key_pages.empty() || !tensors.value_pages.empty();
  const bool table = given(tensors.block_table);
  if (table && addressed) return invalid("block_table", "given beside addresses of pages; one of them decides");
  if (!given(tensors.keys)) {
    if (given(tensors.values)) return invalid("values", "given without keys");
    if (table) return invalid("block_table", "given without keys");
    if (addressed) return invalid("key_pages", "given without keys");
    return reach;
  }
  if (tensors.first_slot < 0) return invalid("first_slot", formatted("{} is negative", tensors.first_slot));
  const auto end = checked_add(tensors.first_slot, run.tokens);
  if (!end) {
    return Status::error(Code::kOverflow, "first_slot",
                         formatted("first_slot: {} and {} tokens pass 64-bit sizes", tensors.first_slot, run.tokens));
  }
  reach.form = table ? Form::kPool : addressed ? Form::kAddresses : Form::kArray;
  const int rank = reach.form == Form::kPool ? 4 : 3;
  if (tensors.keys.rank != rank)
    return invalid("keys", formatted("rank {} where {} is needed", tensors.keys.rank, rank));
  const std::int64_t extent = tensors.keys.shape[static_cast<std::size_t>(tokens_axis(reach.form))];
  if (reach.form == Form::kArray) {
    if (*end > extent) return invalid("keys", formatted("{} tokens where {} slots are needed", extent, *end), extent);
    reach.page_tokens = std::max<std::int64_t>(run.tokens, 1);
    reach.pages = 1;
    return reach;
  }
  if (extent < 1) return invalid("keys", formatted("pages of {} tokens", extent));
  reach.page_tokens = extent;
  reach.first_page = run.tokens == 0 ? 0 : tensors.first_slot / extent;
  reach.pages = run.tokens == 0 ? 0 : (*end - 1) / extent + 1 - reach.first_page;
  return reach;
}

// Values have as many tokens as keys, in an array or a page.
Status admit_same_tokens(const BorrowedTensors& tensors, const Borrowing& reach, std::int64_t end) {
  const auto axis = static_cast<std::size_t>(tokens_axis(reach.form));
  const std::int64_t extent = tensors.values.shape[axis];
  if (reach.form == Form::kArray) {
    if (end > extent) return invalid("values", formatted("{} tokens where {} slots are needed", extent, end), extent);
  } else if (extent != reach.page_tokens) {
    return invalid("values",
                   formatted("pages of {} tokens where those of the keys have {}", extent, reach.page_tokens));
  }
  return {};
}

Status not_a_page(std::int64_t entry, std::int64_t page, std::int64_t pool_pages) {
  return invalid("block_table", formatted("entry {} names page {} of {}", entry, page, pool_pages), entry);
}

// Entries [first, first + pages) name pages below `pool_pages`, each once. `named` is clear before and after.
template <typename Entry>
Status admit_entries(const ConstTensor& table, const Borrowing& reach, std::int64_t pool_pages,
                     std::vector<std::uint64_t>& named) {
  const std::int64_t end = reach.first_page + reach.pages;
  std::uint64_t* const words = named.data();
  const auto page_of = [&](std::int64_t i) {
    Entry page = 0;
    std::memcpy(&page, table.at(i), sizeof page);
    return static_cast<std::int64_t>(page);
  };
  Status status;
  std::int64_t seen = reach.first_page;
  for (; seen < end; ++seen) {
    const std::int64_t page = page_of(seen);
    if (static_cast<std::uint64_t>(page) >= static_cast<std::uint64_t>(pool_pages)) {
      status = not_a_page(seen, page, pool_pages);
      break;
    }
    std::uint64_t& word = words[page / 64];
    const std::uint64_t bit = std::uint64_t{1} << (page % 64);
    if ((word & bit) != 0) {
      status = invalid("block_table", formatted("entry {} names page {}, as an earlier one does", seen, page), seen);
      break;
    }
    word |= bit;
  }
  for (std::int64_t i = reach.first_page; i < seen; ++i) words[page_of(i) / 64] = 0;
  return status;
}

Status admit_table(const ConstTensor& table, const Borrowing& reach, std::int64_t pool_pages,
                   std::vector<std::uint64_t>& named) {
  const DType dtype = table.dtype == DType::kI64 ? DType::kI64 : DType::kI32;
  if (Status s = admit_view("block_table", table, dtype, {-1}); !s.ok()) return s;
  const std::int64_t end = reach.first_page + reach.pages;
  if (table.shape[0] < end)
    return invalid("block_table", formatted("{} entries where {} are needed", table.shape[0], end), table.shape[0]);
  const auto words = static_cast<std::size_t>((pool_pages + 63) / 64);
  if (named.size() < words) named.resize(words);
  return dtype == DType::kI64 ? admit_entries<std::int64_t>(table, reach, pool_pages, named)
                              : admit_entries<std::int32_t>(table, reach, pool_pages, named);
}

Status admit_addresses(std::string_view name, std::span<const std::byte* const> pages, const Borrowing& reach) {
  const auto count = static_cast<std::int64_t>(pages.size());
  const std::int64_t end = reach.first_page + reach.pages;
  if (count < end) return invalid(name, formatted("{} pages where {} are needed", count, end), count);
  for (std::int64_t i = reach.first_page; i < end; ++i) {
    if (pages[static_cast<std::size_t>(i)] == nullptr) return invalid(name, formatted("page {} is null", i), i);
  }
  return {};
}

Status admit_run_of_index(const Geometry& geometry, VisibleRun run, const LayerView& index) {
  const Geometry& other = *index.geometry;
  if (!index.indexed) return invalid("index", "the view has none");
  if (index.run.anchor != run.anchor || index.run.tokens != run.tokens) {
    return invalid("index", formatted("{} tokens from {} where the layer has {} from {}", index.run.tokens,
                                      index.run.anchor, run.tokens, run.anchor));
  }
  if (other.key_tokens() != geometry.key_tokens() || other.index_dim() != geometry.index_dim() ||
      other.index_dtype() != geometry.index_dtype()) {
    return invalid("index", formatted("groups of {} x {} {} where {} x {} {} are needed", other.key_tokens(),
                                      other.index_dim(), dtype_name(other.index_dtype()), geometry.key_tokens(),
                                      geometry.index_dim(), dtype_name(geometry.index_dtype())));
  }
  return {};
}

Status admit_panels(const Geometry& geometry, VisibleRun run, const BorrowedTensors& tensors) {
  const ConstTensor& panels = tensors.panels;
  if (Status s = admit_view("panels", panels, geometry.index_dtype(), {-1, geometry.index_dim(), kPanel}); !s.ok())
    return s;
  std::int64_t dense = dtype_bytes(panels.dtype);
  for (int axis = 2; axis >= 0; --axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (panels.shape[at] > 1 && panels.stride_bytes[at] != dense) {
      return invalid(
          "panels",
          formatted("axis {} has a stride of {} bytes where {} are dense", axis, panels.stride_bytes[at], dense), axis);
    }
    dense *= panels.shape[at];  // admitted: it fits 64 bits
  }
  if (tensors.first_group < 0) return invalid("first_group", formatted("{} is negative", tensors.first_group));
  const auto end = checked_add(tensors.first_group, geometry.index_keys(run.tokens));
  if (!end || *end > panels.shape[0] * kPanel) {
    return invalid(
        "panels",
        formatted("{} of them end before group {} of the run", panels.shape[0], geometry.index_keys(run.tokens) - 1),
        panels.shape[0]);
  }
  if (std::isnan(tensors.panels_max_abs) || tensors.panels_max_abs < 0)
    return invalid("panels_max_abs", formatted("{} is no magnitude", tensors.panels_max_abs));
  return {};
}

Status admit_pages(const BorrowedTensors& tensors, const Borrowing& reach, std::vector<std::uint64_t>& named) {
  if (reach.form == Form::kPool) {
    const std::int64_t pages = tensors.keys.shape[0];
    return admit_table(tensors.block_table, reach, reach.own_values ? std::min(pages, tensors.values.shape[0]) : pages,
                       named);
  }
  if (reach.form != Form::kAddresses) return {};
  if (Status s = admit_addresses("key_pages", tensors.key_pages, reach); !s.ok()) return s;
  if (reach.own_values) return admit_addresses("value_pages", tensors.value_pages, reach);
  return tensors.value_pages.empty() ? Status() : invalid("value_pages", "given where values alias the keys");
}

Status admit_index(const Geometry& geometry, VisibleRun run, const BorrowedTensors& tensors) {
  if (tensors.index == nullptr) return given(tensors.panels) ? admit_panels(geometry, run, tensors) : Status();
  if (given(tensors.panels)) return invalid("index", "given beside panels; one of them decides");
  return admit_run_of_index(geometry, run, *tensors.index);
}

}  // namespace

Result<Borrowing> admit_borrowed(const Geometry& geometry, VisibleRun run, const BorrowedTensors& tensors,
                                 std::vector<std::uint64_t>& named) {
  if (Status s = geometry.check_run(run); !s.ok()) return s;
  auto reach = admit_reach(run, tensors);
  if (!reach.ok()) return reach.status();
  if (reach->form != Form::kNone) {
    auto keys = admit_vectors("keys", tensors.keys, geometry, geometry.head_dim(), reach->form);
    if (!keys.ok()) return keys.status();
    reach->keys = reach->values = *keys;
    const bool alias = geometry.values_alias_keys();
    if (given(tensors.values) == alias)
      return invalid("values", alias ? "given where they alias the keys" : "missing where they do not alias the keys");
    reach->own_values = !alias;
  }
  if (reach->own_values) {
    auto values = admit_vectors("values", tensors.values, geometry, geometry.value_dim(), reach->form);
    if (!values.ok()) return values.status();
    reach->values = *values;
    if (Status s = admit_same_tokens(tensors, *reach, tensors.first_slot + run.tokens); !s.ok()) return s;
  }
  if (Status s = admit_index(geometry, run, tensors); !s.ok()) return s;
  if (Status s = admit_pages(tensors, *reach, named); !s.ok()) return s;
  return reach;
}

}  // namespace seriatim
