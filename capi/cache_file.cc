#include "seriatim/cache_file.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"
#include "seriatim_rule.h"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

static_assert(SERIATIM_RESTORE_COPY == static_cast<int>(RestoreMode::kCopy));
static_assert(SERIATIM_RESTORE_MAP == static_cast<int>(RestoreMode::kMap));
static_assert(SERIATIM_RESTORE_MAP_VERIFIED == static_cast<int>(RestoreMode::kMapVerified));

// The caller's array is too short for what a restore has added: nobody knows the new sequences yet, so they go again.
Status take_back(Cache& cache, const std::vector<RestoredSequence>& restored, std::size_t entries) {
  for (const RestoredSequence& one : restored) {
    if (Status s = cache.remove(one.id); !s.ok()) return s;
  }
  return Status::error(Code::kCapacity, "pairs",
                       formatted("pairs: {} entries for the file's {} sequences", entries, restored.size()));
}

seriatim_cache_file_info describe(const CacheFileInfo& file) {
  seriatim_cache_file_info info{};
  info.sequences = static_cast<std::int64_t>(file.sequences.size());
  info.layers = static_cast<std::int64_t>(file.options.layers.size());
  info.page_tokens = file.options.page_tokens;
  info.token_pages = file.token_pages;
  info.pooled_pages = file.pooled_pages;
  info.token_page_bytes = file.token_page_bytes;
  info.pooled_page_bytes = file.pooled_page_bytes;
  info.file_bytes = file.file_bytes;
  info.mappable = file.mappable ? 1 : 0;
  return info;
}

}  // namespace

seriatim_status seriatim_cache_save(const seriatim_cache* cache, const char* path, const std::int64_t* sequences,
                                    std::int64_t count, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}, {"path", path}}); !s.ok()) return s;
    if (sequences == nullptr && count == -1) return cache->cache->save(path);
    std::span<const SequenceId> some;
    if (Status s = take_array("sequences", sequences, count, some); !s.ok()) return s;
    return cache->cache->save(path, some);
  });
}

seriatim_status seriatim_cache_restore(seriatim_cache* cache, const char* path, std::int32_t mode,
                                       seriatim_restored* pairs, std::int64_t pairs_entries, std::int64_t* count,
                                       seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}, {"path", path}, {"count", count}}); !s.ok()) return s;
    std::span<seriatim_restored> out;
    if (Status s = check_choice("mode", mode, SERIATIM_RESTORE_MAP_VERIFIED); !s.ok()) return s;
    if (Status s = take_array("pairs", pairs, pairs_entries, out); !s.ok()) return s;
    const auto restored = cache->cache->restore(path, static_cast<RestoreMode>(mode));
    if (!restored.ok()) return restored.status();
    if (restored->size() > out.size()) return take_back(*cache->cache, *restored, out.size());
    std::transform(restored->begin(), restored->end(), out.begin(),
                   [](const RestoredSequence& one) { return seriatim_restored{one.saved, one.id}; });
    *count = static_cast<std::int64_t>(restored->size());
    return {};
  });
}

void seriatim_cache_file_info_init(seriatim_cache_file_info* info) {
  if (info == nullptr) return;
  *info = {};
  info->struct_size = sizeof *info;
}

seriatim_status seriatim_cache_file_read(const char* path, seriatim_cache_file_info* info,
                                         seriatim_saved_sequence* sequences, std::int64_t entries,
                                         seriatim_geometry** geometry, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"path", path}}); !s.ok()) return s;
    if (Status s = check_output_bytes("info", info); !s.ok()) return s;
    std::span<seriatim_saved_sequence> out;
    if (Status s = take_array("sequences", sequences, entries, out); !s.ok()) return s;
    const auto file = read_cache_file(path);
    if (!file.ok()) return file.status();
    if (geometry != nullptr) *geometry = new seriatim_geometry{file->geometry};
    for (std::size_t i = 0; i < std::min(out.size(), file->sequences.size()); ++i) {
      const CacheFileInfo::Sequence& one = file->sequences[i];
      out[i] = {one.id, one.run.anchor, one.run.tokens};
    }
    give_struct(info, describe(*file));
    return {};
  });
}

seriatim_status seriatim_cache_file_verify(const char* path, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"path", path}}); !s.ok()) return s;
    return verify_cache_file(path);
  });
}
