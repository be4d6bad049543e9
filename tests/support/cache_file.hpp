// Shared by the tests of the cache's file: a saved cache of every kind, and a file taken apart and put together again.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "cache_file/format.hpp"
#include "seriatim/cache_file.hpp"
#include "support/cache.hpp"
#include "support/file.hpp"

namespace seriatim::cache_testing {

using file::Bytes;
using file::Folder;
using file::slurp;

inline constexpr RestoreMode kModes[] = {RestoreMode::kCopy, RestoreMode::kMap, RestoreMode::kMapVerified};

inline void put_file(const std::string& path, const Bytes& bytes) {
  std::filesystem::remove(path);  // some file systems flush a file that is truncated and written again
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.good());
}

// Three sequences that share pages, one of them with an evicted prefix, one empty.
class SavedCache : public ::testing::TestWithParam<const char*> {
 protected:
  SavedCache() {
    append(*cache_, a_, ids(1, 100));
    b_ = *cache_->fork(a_);
    append(*cache_, a_, ids(200, 3));
    append(*cache_, b_, ids(300, 70));
    EXPECT_TRUE(cache_->evict_prefix(b_, 66).ok());
    EXPECT_TRUE(cache_->save(path_).ok());
  }

  static GeometryOptions options_for(std::string_view kind) {
    GeometryOptions options = small_options(kind == "Finished" ? 1 : 4);
    if (kind == "Coordinates") options.rope_axes = {2, 0};
    if (kind == "Bf16") options.kv_dtype = options.index_dtype = DType::kBf16;
    if (kind == "Finished") {
      options.pooling = Pooling::kNone;
      options.values_alias_keys = true;
    }
    return options;
  }

  const Folder folder_;
  const std::string path_ = folder_ / "cache.safetensors";
  const Geometry geometry_ = admit(options_for(GetParam()));
  const CacheOptions options_ = [] {
    CacheOptions options = cache_options(3, 512, 64);
    options.layers[2].indexed = false;
    return options;
  }();
  const std::unique_ptr<Cache> cache_ = make_cache(geometry_, options_);
  const SequenceId a_ = *cache_->add(7);
  SequenceId b_ = -1;
  const SequenceId empty_ = *cache_->add(9);
};

// A file taken apart, to be changed on purpose and put together again with all checksums right.
struct Parts {
  Metadata metadata;
  cache_file::Shapes shapes;
  cache_file::SmallSections small;
  Bytes pages;

  explicit Parts(const std::string& path) {
    using namespace cache_file;
    const auto read = SafetensorsFile::open(path);
    EXPECT_TRUE(read.ok());
    const Bytes whole = slurp(path);
    std::uint64_t length = 0;
    std::memcpy(&length, whole.data(), sizeof length);
    metadata = read->metadata();
    for (const SafetensorsEntry& entry : read->entries()) {
      for (std::size_t s = 0; s < kSectionCount; ++s) {
        if (entry.name != kSections[s].name) continue;
        shapes[s] = entry.shape;
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(8 + length) + entry.begin_bytes;
        Bytes& to = s < kTokenPageHashes ? pages : small[s];
        to.insert(to.end(), begin, begin + (entry.end_bytes - entry.begin_bytes));
      }
    }
  }

  Bytes together(std::int64_t alignment = cache_file::kDataAlignment) {
    using namespace cache_file;
    const std::string header = header_bytes(metadata, shapes, alignment).value();
    small[kChecksums] = cache_file::bytes_of<std::uint64_t>(checksums(header, small));
    Bytes out = file::to_bytes(header);
    out.insert(out.end(), pages.begin(), pages.end());
    for (std::size_t s = kTokenPageHashes; s < kSectionCount; ++s)
      out.insert(out.end(), small[s].begin(), small[s].end());
    return out;
  }
};

}  // namespace seriatim::cache_testing
