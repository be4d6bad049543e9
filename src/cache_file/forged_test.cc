// Files that lie: parts changed on purpose, all checksums right. Each is refused by the name of what is wrong.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "support/cache_file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

class CacheFileForged : public SavedCache {
 protected:
  using Edit = std::function<void(Metadata&, cache_file::Shapes&, cache_file::SmallSections&, Bytes& pages)>;

  // The error of restoring what `edit` made of the file.
  Status forged(const Edit& edit, RestoreMode mode = RestoreMode::kCopy) {
    Parts parts(path_);
    edit(parts.metadata, parts.shapes, parts.small, parts.pages);
    put_file(folder_ / "forged", parts.together());
    return make_cache(geometry_, options_)->restore(folder_ / "forged", mode).status();
  }

  static void set(Bytes& bytes, std::size_t element, std::int64_t value) {
    std::memcpy(bytes.data() + 8 * element, &value, 8);
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, CacheFileForged, ::testing::Values("Plain"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(CacheFileForged, NothingChangedIsAccepted) {
  for (const RestoreMode mode : kModes) {
    EXPECT_TRUE(forged([](auto&, auto&, auto&, auto&) {}, mode).ok());
  }
}

TEST_P(CacheFileForged, AnotherVersionOrKindIsRefusedByName) {
  const Status later = forged([](Metadata& m, auto&, auto&, auto&) { m["seriatim"] = "cache/3"; });
  EXPECT_EQ(later.code(), Code::kUnsupported);
  EXPECT_NE(later.message().find("version"), std::string::npos);
  EXPECT_EQ(forged([](Metadata& m, auto&, auto&, auto&) { m["seriatim"] = "capture/1"; }).code(), Code::kCorrupt);
  EXPECT_EQ(forged([](Metadata& m, auto&, auto&, auto&) { m.erase("seriatim"); }).code(), Code::kCorrupt);
}

TEST_P(CacheFileForged, StructureThatContradictsItselfIsRefused) {
  using namespace cache_file;
  const auto expect_corrupt = [&](const char* argument, const Edit& edit) {
    for (const RestoreMode mode : kModes) {
      const Status status = forged(edit, mode);
      EXPECT_EQ(status.code(), Code::kCorrupt) << argument << ": " << status.message();
      EXPECT_EQ(status.argument(), argument) << status.message();
    }
  };
  const auto sequences = [](std::size_t element, std::int64_t value) -> Edit {
    return [=](auto&, auto&, SmallSections& small, auto&) { set(small[kSequences], element, value); };
  };
  expect_corrupt("sequences", sequences(0, -1));  // id
  expect_corrupt("sequences", sequences(0, 1));   // the second's
  expect_corrupt("sequences", sequences(1, -7));  // anchor
  expect_corrupt("sequences", sequences(2, -1));  // tokens
  expect_corrupt("sequences", sequences(2, std::int64_t{1} << 40));
  expect_corrupt("sequences", sequences(3, 64));  // first slot
  expect_corrupt("sequences", sequences(3, -1));
  expect_corrupt("sequences", sequences(4, 16));     // first group slot
  expect_corrupt("sequences", sequences(5 + 3, 1));  // of an empty sequence
  expect_corrupt("token_table", sequences(2, 500));
  expect_corrupt("token_table", sequences(2, 1));
  expect_corrupt("token_table", [](auto&, auto&, SmallSections& small, auto&) { set(small[kTokenTable], 0, -1); });
  expect_corrupt("token_table", [](auto&, auto&, SmallSections& small, auto&) { set(small[kTokenTable], 0, 1000); });
  expect_corrupt("pooled_table", [](auto&, auto&, SmallSections& small, auto&) { set(small[kPooledTable], 0, 1000); });
  expect_corrupt("token_table", [](auto&, auto&, SmallSections& small, auto&) {
    set(small[kTokenTable], 0, 1);
  });  // page 0 is nobody's
  expect_corrupt("indexed", [](auto&, auto&, SmallSections& small, auto&) { small[kIndexed][0] = std::byte{2}; });
  expect_corrupt("index_norm_weights", [](auto&, Shapes& shapes, auto&, auto&) { shapes[kIndexNormWeights] = {8, 3}; });
  expect_corrupt("token_pages", [](auto&, Shapes& shapes, auto&, auto&) {
    shapes[kTokenPages] = {1, shapes[kTokenPages][0] * shapes[kTokenPages][1]};
  });
  for (const char* key : {"page_tokens", "group_tokens", "kv_heads", "head_dim", "value_dim", "values_alias_keys",
                          "kv_dtype", "index_dim", "index_rotary_dim", "index_dtype", "pooling", "norm_eps"}) {
    expect_corrupt("header", [&](Metadata& m, auto&, auto&, auto&) { m.erase(key); });
    expect_corrupt("header", [&](Metadata& m, auto&, auto&, auto&) { m[key] = "x"; });
    expect_corrupt("header", [&](Metadata& m, auto&, auto&, auto&) { m[key] = "-3"; });
    expect_corrupt("header", [&](Metadata& m, auto&, auto&, auto&) { m[key] = ""; });
  }
}

// A section that was changed after it was summed is named, whatever its contents would mean.
TEST_P(CacheFileForged, AChangedSectionIsNamed) {
  using namespace cache_file;
  int named = 0;
  const Bytes whole = slurp(path_);
  const auto read = SafetensorsFile::open(path_);
  ASSERT_TRUE(read.ok());
  std::uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  for (const SafetensorsEntry& entry : read->entries()) {
    const bool pages = entry.name == "token_pages" || entry.name == "pooled_pages";
    for (std::int64_t at = entry.begin_bytes; at < entry.end_bytes; at += pages ? 4099 : 8) {
      Bytes changed = whole;
      changed[8 + header + static_cast<std::size_t>(at)] ^= std::byte{1};
      put_file(folder_ / "changed", changed);
      auto other = make_cache(geometry_, options_);
      const Status status = other->restore(folder_ / "changed").status();
      EXPECT_EQ(status.code(), Code::kCorrupt);
      if (entry.name != "checksums") {
        EXPECT_EQ(status.argument(), entry.name) << at;
      }
      EXPECT_EQ(other->bytes().keys_values, 0);
      ++named;
    }
  }
  EXPECT_GT(named, 60);
}

TEST_P(CacheFileForged, ElementsThatAppendWouldRefuseAreRefused) {
  const auto spoil = [](auto&, cache_file::Shapes& shapes, cache_file::SmallSections& small, Bytes& pages) {
    const std::uint32_t infinity = 0x7f800000u;
    std::memcpy(pages.data() + 40, &infinity, sizeof infinity);
    const auto page_bytes = static_cast<std::size_t>(shapes[cache_file::kTokenPages][1]);
    set(small[cache_file::kTokenPageHashes], 0,
        static_cast<std::int64_t>(cache_file::hash(std::span<const std::byte>(pages).first(page_bytes))));
  };
  const Status status = forged(spoil);
  EXPECT_EQ(status.code(), Code::kNotFinite);
  EXPECT_EQ(status.argument(), "token_pages");
  EXPECT_EQ(status.place().row, 0);
  EXPECT_EQ(status.place().index, 40);
  EXPECT_EQ(forged(spoil, RestoreMode::kMapVerified).code(), Code::kNotFinite);
}

TEST_P(CacheFileForged, VerifyFindsPooledKeysThatAreNotThoseOfTheRawKeys) {
  const auto spoil = [](auto&, cache_file::Shapes& shapes, cache_file::SmallSections& small, Bytes& pages) {
    const auto tokens =
        static_cast<std::size_t>(shapes[cache_file::kTokenPages][0] * shapes[cache_file::kTokenPages][1]);
    const auto page_bytes = static_cast<std::size_t>(shapes[cache_file::kPooledPages][1]);
    pages[tokens + 2 * 4] ^= std::byte{1};  // group 2 of the first page, dim 0
    set(small[cache_file::kPooledPageHashes], 0,
        static_cast<std::int64_t>(cache_file::hash(std::span<const std::byte>(pages).subspan(tokens, page_bytes))));
  };
  EXPECT_TRUE(forged(spoil).ok());  // restore trusts the checksum
  const Status status = verify_cache_file(folder_ / "forged");
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_EQ(status.argument(), "pooled_pages");
  EXPECT_EQ(status.place().index, 2);
}

TEST(CacheFile, AnotherGeometryIsRefusedByName) {
  const Folder folder;
  const std::string path = folder / "cache";
  const Geometry geometry = admit(small_options());
  auto cache = make_cache(geometry, cache_options(2, 256, 64));
  append(*cache, *cache->add(), ids(1, 30));
  ASSERT_TRUE(cache->save(path).ok());
  const auto refusal = [&](auto change_geometry, auto change_options) {
    GeometryOptions geometry_options = small_options();
    CacheOptions options = cache_options(2, 256, 64);
    change_geometry(geometry_options);
    change_options(options);
    auto other = make_cache(admit(geometry_options), options);
    const Status status = other->restore(path).status();
    EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument) << status.message();
    EXPECT_EQ(other->bytes().pages() == 0, !status.ok());
    return std::string(status.argument());
  };
  const auto same = [](auto&) {};
  EXPECT_EQ(refusal(same, same), "");
  EXPECT_EQ(refusal(
                [](auto& g) {
                  g.query_heads = 8;
                  g.budget_tokens = 64;
                  g.index_heads = 3;
                  g.relu = false;
                },
                same),
            "");
  EXPECT_EQ(refusal([](auto& g) { g.kv_heads = 1; }, same), "kv_heads");
  EXPECT_EQ(refusal([](auto& g) { g.head_dim = 8; }, same), "head_dim");
  EXPECT_EQ(refusal([](auto& g) { g.value_dim = 6; }, same), "value_dim");
  EXPECT_EQ(refusal([](auto& g) { g.values_alias_keys = true; }, same), "values_alias_keys");
  EXPECT_EQ(refusal([](auto& g) { g.kv_dtype = DType::kF16; }, same), "kv_dtype");
  EXPECT_EQ(refusal([](auto& g) { g.index_dtype = DType::kBf16; }, same), "index_dtype");
  EXPECT_EQ(refusal([](auto& g) { g.index_rotary_dim = 2; }, same), "index_rotary_dim");
  EXPECT_EQ(refusal([](auto& g) { g.rope_theta = 1e4; }, same), "inv_freq");
  EXPECT_EQ(refusal([](auto& g) { g.rope_axes = {0, 1}; }, same), "rope_axes");
  EXPECT_EQ(refusal([](auto& g) { g.norm_eps = 1e-5f; }, same), "norm_eps");
  EXPECT_EQ(refusal([](auto& g) { g.group_tokens = 2; }, same), "group_tokens");
  EXPECT_EQ(refusal(same, [](auto& o) { o.page_tokens = 128; }), "page_tokens");
  EXPECT_EQ(refusal(same, [](auto& o) { o.layers.resize(3); }), "layers");
  EXPECT_EQ(refusal(same, [](auto& o) { o.layers[0].indexed = false; }), "layers");
  EXPECT_EQ(refusal(same, [](auto& o) { o.layers[1].index_norm_weight[3] += 1.0f; }), "index_norm_weight");
}

}  // namespace
}  // namespace seriatim
