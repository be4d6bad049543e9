#include <gtest/gtest.h>

#include <array>
#include <string>

#include "file/consistent.hpp"
#include "seriatim/file.hpp"
#include "support/file.hpp"

namespace seriatim::file {
namespace {

const std::array<float, 6> kFloats{0, -1, 2, -3, 4, -5};
const std::array<std::int64_t, 2> kIntegers{-(std::int64_t{1} << 62), 9};

NamedTensor floats(std::string name, std::initializer_list<std::int64_t> shape) {
  return {std::move(name), dense_view(kFloats.data(), DType::kF32, shape)};
}

TEST(SafetensorsWrite, WritesTheBytesOfTheReferenceWriter) {
  const Folder folder;
  for (const char* name : {"mixed", "metadata_only", "nothing"}) {
    const std::string original = corpus("safetensors/" + std::string(name) + ".safetensors").string();
    const Result<SafetensorsFile> file = SafetensorsFile::open(original);
    ASSERT_TRUE(file.ok());
    std::vector<NamedTensor> tensors;
    for (const std::string& tensor : file->names()) tensors.push_back({tensor, *file->find(tensor)});
    ASSERT_TRUE(write_safetensors(folder / "copy", file->metadata(), tensors).ok());
    EXPECT_GE(slurp(original).size(), 16U);
    EXPECT_EQ(slurp(folder / "copy"), slurp(original)) << name;
  }
}

TEST(SafetensorsWrite, WhatIsWrittenReadsBack) {
  const Folder folder;
  const Metadata metadata{{"seriatim", "replay/1"}, {"", "\u20AC \"\\\t\x01"}};
  std::vector<NamedTensor> tensors{floats("z", {2, 3}),
                                   floats("", {6}),
                                   floats("a", {3, 0, 2}),
                                   {"i", dense_view(kIntegers.data(), DType::kI64, {1, 2, 1, 1})}};
  ASSERT_TRUE(write_safetensors(folder / "file", metadata, tensors).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder / "file");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata(), metadata);
  EXPECT_EQ(file->names(), (std::vector<std::string>{"z", "", "a", "i"}));
  const ConstTensor z = *file->find("z");
  EXPECT_EQ(z.shape, (std::array<std::int64_t, 4>{2, 3, 1, 1}));
  EXPECT_EQ(std::memcmp(z.data, kFloats.data(), sizeof kFloats), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(z.data) % 8, 0U);
  EXPECT_EQ(std::memcmp(file->find("i")->data, kIntegers.data(), sizeof kIntegers), 0);
  EXPECT_EQ(file->find("a")->shape[1], 0);
}

TEST(SafetensorsWrite, TheSameArgumentsGiveTheSameBytes) {
  const Folder folder;
  const std::vector<NamedTensor> tensors{floats("b", {6}), floats("a", {2, 3})};
  ASSERT_TRUE(write_safetensors(folder / "1", {{"b", "1"}, {"a", "2"}}, tensors).ok());
  ASSERT_TRUE(write_safetensors(folder / "2", {{"a", "2"}, {"b", "1"}}, tensors).ok());
  EXPECT_GT(slurp(folder / "1").size(), 48U);
  EXPECT_EQ(slurp(folder / "1"), slurp(folder / "2"));
}

TEST(SafetensorsWrite, StridedViewsAreWrittenRowMajor) {
  const Folder folder;
  ConstTensor transposed = dense_view(kFloats.data(), DType::kF32, {3, 2});
  transposed.stride_bytes = {4, 12, 0, 0};
  const std::vector<NamedTensor> tensors{{"t", transposed}};
  ASSERT_TRUE(write_safetensors(folder / "file", {}, tensors).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder / "file");
  ASSERT_TRUE(file.ok());
  const std::array<float, 6> expected{0, -3, -1, 4, 2, -5};
  EXPECT_EQ(std::memcmp(file->find("t")->data, expected.data(), sizeof expected), 0);
}

TEST(SafetensorsWrite, RefusesWhatNoReaderWouldTakeAndLeavesTheOldFile) {
  ConstTensor negative = dense_view(kFloats.data(), DType::kF32, {2});
  negative.shape[0] = -1;
  ConstTensor backwards = dense_view(kFloats.data(), DType::kF32, {2});
  backwards.stride_bytes[0] = -4;
  ConstTensor rank5 = dense_view(kFloats.data(), DType::kF32, {2});
  rank5.rank = 5;
  ConstTensor hidden = dense_view(kFloats.data(), DType::kF32, {2});
  hidden.shape[2] = 3;
  ConstTensor huge = dense_view(kFloats.data(), DType::kF32, {2});
  huge.shape = {std::int64_t{1} << 61, 1, 1, 1};
  ConstTensor absent = dense_view(static_cast<const void*>(nullptr), DType::kF32, {2});
  ConstTensor vast = dense_view(kFloats.data(), DType::kF32, {std::int64_t{1} << 60});
  const std::vector<std::pair<std::string, std::vector<NamedTensor>>> cases{
      {"negative", {{"negative", negative}}},
      {"backwards", {floats("fine", {1}), {"backwards", backwards}}},
      {"rank5", {{"rank5", rank5}}},
      {"hidden", {{"hidden", hidden}}},
      {"huge", {{"huge", huge}}},
      {"absent", {{"absent", absent}}},
      {"second", {{"first", vast}, {"second", vast}}},
      {"twice", {floats("twice", {1}), floats("twice", {1})}},
      {"__metadata__", {floats("__metadata__", {1})}},
      {"\\xc3(", {floats("\xC3(", {1})}},
  };
  const Folder folder;
  ASSERT_TRUE(write_safetensors(folder / "file", {{"old", "yes"}}, {}).ok());
  const Bytes old = slurp(folder / "file");
  for (const auto& [argument, tensors] : cases) {
    const Status status = write_safetensors(folder / "file", {}, tensors);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << argument;
    EXPECT_EQ(status.argument(), argument);
    EXPECT_EQ(slurp(folder / "file"), old);
  }
  EXPECT_EQ(write_safetensors(folder / "file", {{"k", "\xFF"}}, {}).argument(), "metadata");
  EXPECT_EQ(write_safetensors(folder / "file", {{"\xFF", "v"}}, {}).argument(), "metadata");
  EXPECT_EQ(write_safetensors(folder / "absent/file", {}, {}).code(), Code::kIo);
  EXPECT_EQ(slurp(folder / "file"), old);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

}  // namespace
}  // namespace seriatim::file
