// Files of version 1 are still read: the fixtures of tests/fixtures/cache_1, written by the library that wrote them,
// hold what SavedCache holds.
#include <gtest/gtest.h>

#include "support/cache_file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

class CacheFileVersion1 : public SavedCache {
 protected:
  const std::string older_ = std::string(SERIATIM_CORPUS_DIR) + "/../fixtures/cache_1/" + GetParam() + ".safetensors";
};

INSTANTIATE_TEST_SUITE_P(Kinds, CacheFileVersion1, ::testing::Values("Plain", "Coordinates", "Bf16", "Finished"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(CacheFileVersion1, EverySequenceComesBackBitForBit) {
  auto other = make_cache(geometry_, options_);
  auto restored = other->restore(older_, RestoreMode::kCopy);
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  const SequenceId saved[] = {a_, empty_, b_};
  ASSERT_EQ(restored->size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*restored)[i].saved, saved[i]);
    const auto expected = image(*cache_, saved[i]);
    ASSERT_GE(expected.size(), 24u);
    EXPECT_EQ(image(*other, (*restored)[i].id), expected);
  }
}

TEST_P(CacheFileVersion1, SavedAgainItIsAFileOfVersion2) {
  auto other = make_cache(geometry_, options_);
  ASSERT_TRUE(other->restore(older_, RestoreMode::kCopy).ok());
  const std::string again = folder_ / "again.safetensors";
  ASSERT_TRUE(other->save(again).ok());
  const Parts ours(path_);
  const Parts theirs(again);
  EXPECT_EQ(theirs.metadata.at("seriatim"), "cache/2");
  ASSERT_GT(theirs.pages.size(), 1000u);
  EXPECT_EQ(theirs.pages, ours.pages);
  EXPECT_NE(Parts(older_).pages, ours.pages) << "or the fixture is of version 2";
}

TEST_P(CacheFileVersion1, IsWholeAndNotMappable) {
  EXPECT_TRUE(verify_cache_file(older_).ok());
  const auto info = read_cache_file(older_);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_FALSE(info->mappable);
  EXPECT_EQ(info->version, 1);
  EXPECT_EQ(read_cache_file(path_)->version, 2);
  EXPECT_TRUE(read_cache_file(path_)->mappable);
  for (const RestoreMode mode : {RestoreMode::kMap, RestoreMode::kMapVerified}) {
    auto other = make_cache(geometry_, options_);
    const Status status = other->restore(older_, mode).status();
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_NE(status.message().find("version 1"), std::string_view::npos) << status.message();
  }
}

TEST_P(CacheFileVersion1, AChangedByteInAPageIsNamed) {
  Parts parts(older_);
  parts.pages[100] ^= std::byte{1};
  put_file(folder_ / "changed.safetensors", parts.together());
  auto other = make_cache(geometry_, options_);
  const Status status = other->restore(folder_ / "changed.safetensors", RestoreMode::kCopy).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_EQ(status.argument(), "token_pages");
}

}  // namespace
}  // namespace seriatim
