#include "seriatim/borrow.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/float_environment.hpp"
#include "borrow/admit_borrowed.hpp"

namespace seriatim {
namespace {

using Form = Borrowing::Form;

template <typename Entry>
void list_pool_pages(const ConstTensor& pool, const ConstTensor& table, const Borrowing& reach,
                     const std::byte** pages) {
  for (std::int64_t i = 0; i < reach.pages; ++i) {
    Entry page = 0;
    std::memcpy(&page, table.at(reach.first_page + i), sizeof page);
    pages[i] = pool.at(page);
  }
}

// The address of every page of the run. The vector has room.
void list_pages(const ConstTensor& tensor, std::span<const std::byte* const> addresses, const BorrowedTensors& tensors,
                const Borrowing& reach, std::vector<const std::byte*>& pages) {
  pages.resize(static_cast<std::size_t>(reach.pages));
  if (reach.form == Form::kArray) {
    pages[0] = tensor.data == nullptr ? nullptr : tensor.at(tensors.first_slot);
  } else if (reach.form == Form::kAddresses) {
    std::copy_n(addresses.begin() + reach.first_page, reach.pages, pages.begin());
  } else if (reach.form == Form::kPool && tensors.block_table.dtype == DType::kI64) {
    list_pool_pages<std::int64_t>(tensor, tensors.block_table, reach, pages.data());
  } else if (reach.form == Form::kPool) {
    list_pool_pages<std::int32_t>(tensor, tensors.block_table, reach, pages.data());
  }
}

// Pooled keys in one page: the caller's panels.
PooledKeys panel_view(const Geometry& geometry, std::int64_t groups, const BorrowedTensors& tensors,
                      const std::byte* const* page) {
  PooledKeys pooled;
  pooled.pages = page;
  pooled.page_groups = std::max<std::int64_t>(tensors.panels.shape[0], 1) * PooledKeys::kPanelGroups;
  pooled.first_slot = tensors.first_group;
  pooled.groups = groups;
  pooled.dim = geometry.index_dim();
  pooled.dtype = geometry.index_dtype();
  pooled.max_abs = tensors.panels_max_abs;
  return pooled;
}

}  // namespace

BorrowedLayer::BorrowedLayer(const Geometry& geometry) : geometry_(&geometry) {
  view_.geometry = geometry_;
  view_.page_tokens = view_.block_tokens = 1;
  view_.key_offset_bytes = -1;
  view_.indexed = false;
}

Status BorrowedLayer::bind(VisibleRun run, const BorrowedTensors& tensors) {
  DefaultFloatEnvironment environment;
  Result<Borrowing> admitted = Borrowing();
  try {
    admitted = admit_borrowed(*geometry_, run, tensors, named_);
    if (!admitted.ok()) return admitted.status();
    // Memory first: the view that there is stays right should some of it be refused.
    key_pages_.reserve(static_cast<std::size_t>(admitted->pages));
    view_.pages = key_pages_.data();
    value_pages_.reserve(admitted->own_values ? static_cast<std::size_t>(admitted->pages) : 0);
    if (view_.value_pages != nullptr) view_.value_pages = value_pages_.data();
    panels_.resize(1);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "layer", "layer: the system refused memory");
  }
  list_pages(tensors.keys, tensors.key_pages, tensors, *admitted, key_pages_);
  if (admitted->own_values) list_pages(tensors.values, tensors.value_pages, tensors, *admitted, value_pages_);
  const bool paged = admitted->form == Form::kPool || admitted->form == Form::kAddresses;
  view_ = LayerView();
  view_.geometry = geometry_;
  view_.run = run;
  view_.pages = key_pages_.data();
  view_.value_pages = admitted->own_values ? value_pages_.data() : nullptr;
  view_.page_tokens = view_.block_tokens = admitted->page_tokens;
  view_.first_slot = paged && run.tokens > 0 ? tensors.first_slot % admitted->page_tokens : 0;
  view_.key_offset_bytes = admitted->form == Form::kNone ? -1 : 0;
  view_.key_strides = admitted->keys;
  view_.value_strides = admitted->values;
  view_.indexed = tensors.panels.rank != 0 || tensors.index != nullptr;
  if (tensors.index != nullptr) {
    view_.pooled = tensors.index->pooled;
    view_.damaged = tensors.index->damaged;
  } else if (view_.indexed) {
    panels_[0] = tensors.panels.data;
    view_.pooled = panel_view(*geometry_, geometry_->index_keys(run.tokens), tensors, panels_.data());
  }
  return {};
}

}  // namespace seriatim
