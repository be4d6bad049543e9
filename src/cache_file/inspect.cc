
#include <cmath>
#include <cstring>
#include <utility>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "cache/impl.hpp"
#include "cache_file/format.hpp"
#include "cache_file/opened.hpp"
#include "seriatim/cache_file.hpp"

namespace seriatim {
namespace {

// Equal bits. Where finite raw keys overflowed, kernels differ in the bits of a NaN.
bool same_element(const std::byte* a, const std::byte* b, DType dtype) {
  if (std::memcmp(a, b, static_cast<std::size_t>(dtype_bytes(dtype))) == 0) return true;
  return std::isnan(load_element(a, dtype)) && std::isnan(load_element(b, dtype));
}

// Pools a layer's raw keys again and compares.
Status check_pooled(const LayerView& view, const std::vector<float>& norm_weight, std::int64_t row,
                    std::int64_t layer) {
  if (view.raw_offset_bytes == kAbsent) return {};
  const Geometry& g = *view.geometry;
  const std::int64_t r = g.group_tokens();
  const std::int64_t bytes_per_row = row_bytes(g.index_dtype(), g.index_dim());
  std::vector<std::byte> raw(static_cast<std::size_t>(r * bytes_per_row));
  std::vector<std::byte> pooled(static_cast<std::size_t>(bytes_per_row));
  std::vector<Coordinates> coordinates(static_cast<std::size_t>(r));
  const std::int64_t element = dtype_bytes(g.index_dtype());
  for (std::int64_t group = 0; group < view.pooled.groups; ++group) {
    const std::int64_t first = view.run.anchor + group * r;
    for (std::int64_t t = 0; t < r; ++t) {
      std::memcpy(raw.data() + t * bytes_per_row, view.raw_index_key(first + t),
                  static_cast<std::size_t>(bytes_per_row));
      coordinates[static_cast<std::size_t>(t)] = view.coordinates(first + t);
    }
    Status status = pool_keys(g, dense_view(norm_weight.data(), DType::kF32, {g.index_dim()}),
                              dense_view(std::as_const(raw).data(), g.index_dtype(), {r, g.index_dim()}), first,
                              coordinates.data(), dense_view(pooled.data(), g.index_dtype(), {1, g.index_dim()}));
    if (!status.ok()) return status;
    for (std::int64_t i = 0; i < g.index_dim(); ++i) {
      const std::byte* stored = view.pooled.group(group) + i * PooledKeys::kPanelGroups * element;
      if (same_element(stored, pooled.data() + i * element, g.index_dtype())) continue;
      return cache_file::corrupt(
          "pooled_pages",
          formatted("group {} of layer {} in row {} of sequences is not the pooled key of its raw keys", group, layer,
                    row),
          {row, group});
    }
  }
  return {};
}

}  // namespace

Result<CacheFileInfo> read_cache_file(const std::string& path) {
  return guarded([&]() -> Result<CacheFileInfo> {
    auto file = CacheFile::open(path);
    if (!file.ok()) return file.status();
    CacheFileInfo info{file->geometry, file->options, {}};
    info.version = file->version_1 ? 1 : 2;
    info.token_pages = std::ssize(file->token_page_hashes);
    info.pooled_pages = std::ssize(file->pooled_page_hashes);
    info.token_page_bytes = file->token_page_bytes();
    info.pooled_page_bytes = file->layout.pooled_page_bytes;
    info.file_bytes = file->file.size();
    info.mappable = file->mappable();
    for (const CacheFile::Sequence& sequence : file->sequences) info.sequences.push_back({sequence.id, sequence.run});
    return info;
  });
}

// A cache that takes nothing but this file is what judges it.
Status verify_cache_file(const std::string& path) {
  DefaultFloatEnvironment environment;
  return guarded([&]() -> Status {
    auto info = read_cache_file(path);
    if (!info.ok()) return info.status();
    if (info->token_pages == 0) return {};
    CacheOptions options = info->options;
    if (!info->mappable) options.capacity_tokens = info->token_pages * options.page_tokens;
    auto cache = Cache::create(info->geometry, options);
    if (!cache.ok()) return cache.status();
    const auto restored = (*cache)->restore(path, info->mappable ? RestoreMode::kMapVerified : RestoreMode::kCopy);
    if (!restored.ok()) return restored.status();
    for (std::size_t i = 0; i < restored->size(); ++i) {
      const auto snapshot = (*cache)->snapshot((*restored)[i].id);
      if (!snapshot.ok()) return snapshot.status();
      for (std::int64_t l = 0; l < snapshot->layers(); ++l) {
        const auto& weight = options.layers[static_cast<std::size_t>(l)].index_norm_weight;
        Status status = check_pooled(snapshot->layer(l), weight, static_cast<std::int64_t>(i), l);
        if (Status cut = snapshot->check(); !cut.ok()) return cut;
        if (!status.ok()) return status;
      }
    }
    return {};
  });
}

}  // namespace seriatim
