#include "cache_file/format.hpp"

#include <charconv>
#include <cstring>
#include <iterator>

#include "base/format.hpp"
#include "file/safetensors_header.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace seriatim::cache_file {
namespace {

Result<std::string_view> text_of(const Metadata& metadata, std::string_view key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return corrupt("header", formatted("the metadata do not say {}", key));
  return std::string_view(found->second);
}

template <typename T>
Result<T> number_of(const Metadata& metadata, std::string_view key) {
  const auto text = text_of(metadata, key);
  if (!text.ok()) return text.status();
  T value{};
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) return corrupt("header", formatted("{} is not a number", key));
  return value;
}

Result<DType> float_dtype_of(const Metadata& metadata, std::string_view key) {
  const auto text = text_of(metadata, key);
  if (!text.ok()) return text.status();
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    if (*text == dtype_name(dtype)) return dtype;
  }
  return corrupt("header", formatted("{} is not f32, bf16 or f16", key));
}

Result<Pooling> pooling_of(const Metadata& metadata) {
  const auto text = text_of(metadata, "pooling");
  if (!text.ok()) return text.status();
  if (const auto pooling = pooling_named(*text)) return *pooling;
  return corrupt("header", "pooling is none that is known");
}

}  // namespace

std::uint64_t hash(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Status corrupt(std::string_view section, std::string_view what, Place place) {
  return Status::error(Code::kCorrupt, section, formatted("{}: {}", section, what), place);
}

Metadata describe(const Geometry& g, std::int64_t page_tokens) {
  return {{std::string(kVersionKey), std::string(kVersion)},
          {"page_tokens", formatted("{}", page_tokens)},
          {"group_tokens", formatted("{}", g.group_tokens())},
          {"kv_heads", formatted("{}", g.kv_heads())},
          {"head_dim", formatted("{}", g.head_dim())},
          {"value_dim", formatted("{}", g.value_dim())},
          {"values_alias_keys", g.values_alias_keys() ? "1" : "0"},
          {"kv_dtype", std::string(dtype_name(g.kv_dtype()))},
          {"index_dim", formatted("{}", g.index_dim())},
          {"index_rotary_dim", formatted("{}", g.index_rotary_dim())},
          {"index_dtype", std::string(dtype_name(g.index_dtype()))},
          {"pooling", std::string(pooling_name(g.pooling()))},
          {"norm_eps", formatted("{}", g.norm_eps())}};
}

Result<std::int64_t> integer_of(const Metadata& metadata, std::string_view key) {
  return number_of<std::int64_t>(metadata, key);
}

Result<GeometryOptions> options_of(const Metadata& metadata) {
  GeometryOptions options;
  const std::pair<std::string_view, std::int64_t*> integers[] = {
      {"group_tokens", &options.group_tokens}, {"kv_heads", &options.kv_heads},
      {"head_dim", &options.head_dim},         {"value_dim", &options.value_dim},
      {"index_dim", &options.index_dim},       {"index_rotary_dim", &options.index_rotary_dim}};
  for (const auto& [key, value] : integers) {
    const auto number = integer_of(metadata, key);
    if (!number.ok()) return number.status();
    *value = *number;
  }
  if (options.index_rotary_dim < 0) return corrupt("header", "index_rotary_dim is negative");
  if (options.value_dim < 1) return corrupt("header", "value_dim is not positive");  // 0 would ask for a default
  const auto alias = integer_of(metadata, "values_alias_keys");
  const auto eps = number_of<float>(metadata, "norm_eps");
  const auto kv = float_dtype_of(metadata, "kv_dtype");
  const auto index = float_dtype_of(metadata, "index_dtype");
  const auto pooling = pooling_of(metadata);
  for (const Status& s : {alias.status(), eps.status(), kv.status(), index.status(), pooling.status()}) {
    if (!s.ok()) return s;
  }
  if (*alias != 0 && *alias != 1) return corrupt("header", "values_alias_keys is neither 0 nor 1");
  options.values_alias_keys = *alias == 1;
  options.norm_eps = *eps;
  options.kv_dtype = *kv;
  options.index_dtype = *index;
  options.pooling = *pooling;
  options.budget_tokens = options.group_tokens;
  options.query_heads = options.kv_heads;
  options.index_heads = 1;
  return options;
}

Result<int> version_of(const Metadata& metadata) {
  const auto kind = metadata.find(kVersionKey);
  if (kind == metadata.end() || !kind->second.starts_with(kKind)) {
    return corrupt("header",
                   formatted("the metadata do not say that this is a cache ({} = {})", kVersionKey, kVersion));
  }
  if (kind->second == kVersion) return 2;
  if (kind->second == kOlderVersion) return 1;
  return Status::error(
      Code::kUnsupported, "header",
      formatted("header: its version is neither {} nor {}, which this build knows", kVersion, kOlderVersion));
}

Result<std::string> header_bytes(const Metadata& metadata, const Shapes& shapes, std::int64_t alignment) {
  std::array<file::ListedTensor, kSectionCount> tensors;
  for (std::size_t s = 0; s < kSectionCount; ++s) tensors[s] = {kSections[s].name, kSections[s].dtype, shapes[s]};
  return file::safetensors_header(metadata, tensors, alignment);
}

std::array<std::uint64_t, kChecksumCount> checksums(std::string_view header, const SmallSections& small) {
  std::array<std::uint64_t, kChecksumCount> sums{};
  std::size_t next = 0;
  sums[next++] = hash(std::as_bytes(std::span<const char>(header)));
  for (std::size_t s = kTokenPageHashes; s < kSectionCount; ++s) {
    if (s != kChecksums) sums[next++] = hash(small[s]);
  }
  sums[next] = hash(std::as_bytes(std::span(sums).first(next)));
  return sums;
}

}  // namespace seriatim::cache_file
