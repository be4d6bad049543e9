// seriatim cache info FILE, seriatim cache verify FILE.
#include "commands.hpp"
#include "file/bytes.hpp"
#include "print.hpp"
#include "seriatim/cache_file.hpp"

namespace seriatim::cli {
namespace {

void print_geometry(const CacheFileInfo& info) {
  const Geometry& g = info.geometry;
  std::int64_t indexed = 0;
  for (const LayerParameters& layer : info.options.layers) indexed += layer.indexed ? 1 : 0;
  print("layers          {} ({} with an index)\n", info.options.layers.size(), indexed);
  print("keys, values    {} heads of {} and {}, {}{}\n", g.kv_heads(), g.head_dim(), g.value_dim(),
        dtype_name(g.kv_dtype()), g.values_alias_keys() ? ", values alias keys" : "");
  print("index keys      {} dims, {} rotate, {}, groups of {}\n", g.index_dim(), g.index_rotary_dim(),
        dtype_name(g.index_dtype()), g.group_tokens());
}

void print_info(const CacheFileInfo& info) {
  print("version         {}\n", info.version);
  print_geometry(info);
  print("token pages     {} x {} bytes, {} tokens each\n", info.token_pages, info.token_page_bytes,
        info.options.page_tokens);
  print("pooled pages    {} x {} bytes\n", info.pooled_pages, info.pooled_page_bytes);
  print("file            {} bytes{}\n", info.file_bytes,
        info.mappable       ? ""
        : info.version == 1 ? ", restored by copying"
                            : ", not aligned for mapping");
  print("sequences       {}\n", info.sequences.size());
  for (const auto& [id, run] : info.sequences) {
    if (run.tokens == 0) {
      print("  {:>12}  empty at {}\n", id, run.anchor);
    } else {
      print("  {:>12}  {} tokens, positions {}..{}\n", id, run.tokens, run.anchor, run.anchor + run.tokens - 1);
    }
  }
}

}  // namespace

int cache_info(const std::string& file) {
  const auto info = read_cache_file(file);
  if (!info.ok()) return refuse(info.status());
  print_info(*info);
  return kAgrees;
}

int cache_verify(const std::string& path) {
  const Status status = verify_cache_file(path);
  if (!status.ok()) {
    refuse(status);
    const bool judged = status.code() == Code::kCorrupt || status.code() == Code::kNotFinite;
    return judged ? kDisagrees : kBadInput;
  }
  print("{}: whole\n", file::shown_path(path));
  return kAgrees;
}

}  // namespace seriatim::cli
