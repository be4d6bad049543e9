#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "base/format.hpp"
#include "file/consistent.hpp"
#include "seriatim/file.hpp"
#include "support/file.hpp"

namespace seriatim::file {
namespace {

struct Refusal {
  const char* what;
  std::string header;
  std::size_t data_bytes;
  Code code;
  std::string argument;
  std::string reason;  // part of the message
};

std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return formatted(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

std::string object(std::string_view inside) { return formatted("{{{}}}", inside); }

void expect_refused(const Refusal& r) {
  SCOPED_TRACE(r.what);
  const Bytes bytes = framed(r.header, r.data_bytes);
  const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), r.code);
  EXPECT_EQ(file.status().argument(), r.argument);
  EXPECT_NE(file.status().message().find(r.reason), std::string_view::npos) << file.status().message();
  EXPECT_EQ(file.status().message().find('\n'), std::string_view::npos);
}

template <typename T>
T element(const ConstTensor& view, std::int64_t i0, std::int64_t i1 = 0, std::int64_t i2 = 0, std::int64_t i3 = 0) {
  T out{};
  std::memcpy(&out, view.at(i0, i1, i2, i3), sizeof out);
  return out;
}

TEST(Safetensors, ReadsWhatTheReferenceWriterWrote) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(corpus("safetensors/mixed.safetensors").string());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata(), (Metadata{{"note", "two\nlines"}}));
  EXPECT_EQ(file->names(),
            (std::vector<std::string>{"i64", "a/f32", "none", "scalar", "i32", "\u00fc \"quoted\"", "bf16", "f16"}));
  const ConstTensor f32 = *file->find("a/f32");
  EXPECT_EQ(f32.dtype, DType::kF32);
  EXPECT_EQ(f32.rank, 2);
  EXPECT_EQ(f32.shape, (std::array<std::int64_t, 4>{2, 3, 1, 1}));
  EXPECT_EQ(f32.stride_bytes, (std::array<std::int64_t, 4>{12, 4, 0, 0}));
  EXPECT_EQ(element<std::uint32_t>(f32, 0, 1), 0x80000000U);
  EXPECT_EQ(element<float>(f32, 0, 2), 1.5F);
  EXPECT_EQ(element<float>(f32, 1, 1), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(element<float>(f32, 1, 2)));
  EXPECT_EQ(element<std::uint16_t>(*file->find("bf16"), 1), 0xBF80U);
  EXPECT_EQ(element<std::uint16_t>(*file->find("f16"), 1, 0), 0x7BFFU);
  EXPECT_EQ(element<std::int32_t>(*file->find("i32"), 0, 0, 0, 2), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(element<std::int64_t>(*file->find("i64"), 0), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(file->find("scalar")->rank, 0);
  EXPECT_EQ(element<float>(*file->find("scalar"), 0), 0.25F);
  EXPECT_EQ(element<std::int32_t>(*file->find("\u00fc \"quoted\""), 0), 7);
  EXPECT_TRUE(file->contains("none"));
  EXPECT_FALSE(file->contains("None"));
}

TEST(Safetensors, TensorsWithoutElementsAreViewsWithoutBytes) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(corpus("safetensors/mixed.safetensors").string());
  ASSERT_TRUE(file.ok());
  const ConstTensor none = *file->find("none");
  EXPECT_EQ(none.shape, (std::array<std::int64_t, 4>{0, 4, 1, 1}));
  EXPECT_FALSE(none.empty());
  EXPECT_EQ(touch(none), 0U);
}

TEST(Safetensors, TensorsThatHaveNoViewAreListedAndRefusedByName) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(corpus("safetensors/foreign.safetensors").string());
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->entries().size(), 3U);
  EXPECT_EQ(file->entries()[0].name, "f64");
  EXPECT_EQ(file->entries()[0].dtype, "F64");
  for (const char* name : {"f64", "u8", "rank5"}) {
    const Result<ConstTensor> view = file->find(name);
    ASSERT_FALSE(view.ok());
    EXPECT_EQ(view.status().code(), Code::kUnsupported);
    EXPECT_EQ(view.status().argument(), name);
  }
  EXPECT_NE(file->find("f64").status().message().find("F64"), std::string_view::npos);
  EXPECT_NE(file->find("rank5").status().message().find("rank 5"), std::string_view::npos);
  EXPECT_EQ(file->find("absent").status().code(), Code::kNotFound);
  EXPECT_EQ(file->find("absent").status().argument(), "absent");
}

TEST(Safetensors, AFileMayHoldOnlyMetadataOrNothing) {
  const auto metadata_only = SafetensorsFile::open(corpus("safetensors/metadata_only.safetensors").string());
  ASSERT_TRUE(metadata_only.ok());
  EXPECT_EQ(metadata_only->metadata().at("seriatim"), "capture/1");
  EXPECT_TRUE(metadata_only->entries().empty());
  const auto nothing = SafetensorsFile::open(corpus("safetensors/nothing.safetensors").string());
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->metadata().empty());
  EXPECT_TRUE(nothing->entries().empty());
}

TEST(Safetensors, UnpaddedHeadersGiveUnalignedViewsThatCanBeRead) {
  std::string header = object(tensor("a", "F32", "[2]", "[0,8]"));
  while (header.size() % 4 != 1) header += ' ';
  const Bytes bytes = framed(header, 8);
  const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes);
  ASSERT_TRUE(file.ok());
  const ConstTensor view = *file->find("a");
  EXPECT_NE(reinterpret_cast<std::uintptr_t>(view.data) % 4, 0U);
  EXPECT_EQ(element<std::uint32_t>(view, 1), 0x5A5A5A5AU);
}

TEST(Safetensors, OffsetsMayStandInAnyOrderAsLongAsTheyCoverTheData) {
  const Bytes bytes = framed(object(tensor("b", "F32", "[1]", "[4,8]") + "," + tensor("z", "I32", "[0]", "[4,4]") +
                                    "," + tensor("a", "F32", "[1]", "[0,4]")),
                             8);
  const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->names(), (std::vector<std::string>{"b", "z", "a"}));
  EXPECT_EQ(file->find("b")->data - file->find("a")->data, 4);
}

TEST(Safetensors, CopiesShareOwnedMemory) {
  SafetensorsFile copy;
  {
    const Result<SafetensorsFile> file = SafetensorsFile::open(corpus("safetensors/mixed.safetensors").string());
    ASSERT_TRUE(file.ok());
    copy = *file;
  }
  EXPECT_EQ(element<float>(*copy.find("scalar"), 0), 0.25F);
}

TEST(Safetensors, RefusesTruncationAtEveryByte) {
  const Bytes whole = slurp(corpus("safetensors/mixed.safetensors"));
  ASSERT_TRUE(SafetensorsFile::parse(whole).ok());
  ASSERT_GT(whole.size(), 100U);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<SafetensorsFile> file = SafetensorsFile::parse(cut);
    ASSERT_FALSE(file.ok()) << size;
    ASSERT_EQ(file.status().code(), Code::kCorrupt) << size;
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_EQ(SafetensorsFile::parse(longer).status().argument(), "data");
}

TEST(Safetensors, AnyChangedByteIsRefusedOrGivesAConsistentFile) {
  std::int64_t refused = 0;
  std::int64_t admitted = 0;
  for (const char* name : {"safetensors/mixed.safetensors", "safetensors/foreign.safetensors"}) {
    for_each_one_byte_change(slurp(corpus(name)), [&](const Bytes& bytes, std::size_t at) {
      const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes);
      ++(file.ok() ? admitted : refused);
      if (file.ok()) {
        ASSERT_TRUE(consistent(*file, bytes)) << name << " byte " << at;
      } else {
        ASSERT_TRUE(file.status().code() == Code::kCorrupt || file.status().code() == Code::kUnsupported) << at;
        ASSERT_FALSE(file.status().message().empty());
      }
    });
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(admitted, 1000);  // changed data, names and metadata
}

TEST(Safetensors, RefusesHeadersThatLieAboutTheirLength) {
  const Bytes empty;
  EXPECT_EQ(SafetensorsFile::parse(empty).status().code(), Code::kCorrupt);
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 20, std::uint64_t{100'000'000}}) {
    Bytes bytes = framed("{}", 0);
    std::memcpy(bytes.data(), &length, sizeof length);
    EXPECT_EQ(SafetensorsFile::parse(bytes).status().code(), Code::kCorrupt) << length;
    EXPECT_EQ(SafetensorsFile::parse(bytes).status().argument(), "header");
  }
  for (const std::uint64_t length :
       {std::uint64_t{100'000'001}, std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()}) {
    Bytes bytes = framed("{}", 0);
    std::memcpy(bytes.data(), &length, sizeof length);
    EXPECT_EQ(SafetensorsFile::parse(bytes).status().code(), Code::kUnsupported) << length;
  }
  Bytes none = framed("", 0);
  EXPECT_EQ(SafetensorsFile::parse(none).status().code(), Code::kCorrupt);
}

TEST(Safetensors, RefusesWhatIsNotTheKnownFormOfJson) {
  const auto one = [](std::string_view fields) { return formatted(R"({{"a":{{{}}}}})", fields); };
  const std::string ok = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  ASSERT_TRUE(SafetensorsFile::parse(framed(one(ok), 4)).ok());
  const std::vector<Refusal> refusals = {
      {"blank first", " {}", 0, Code::kCorrupt, "header", "begin"},
      {"byte order mark", "\xEF\xBB\xBF{}", 0, Code::kCorrupt, "header", "begin"},
      {"array", "[]", 0, Code::kCorrupt, "header", "begin"},
      {"text behind", "{} {}", 0, Code::kCorrupt, "header", "JSON"},
      {"zero byte behind", std::string("{}\0", 3), 0, Code::kCorrupt, "header", "zero byte"},
      {"unfinished", "{", 0, Code::kCorrupt, "header", "JSON"},
      {"comment", "{/**/}", 0, Code::kCorrupt, "header", "JSON"},
      {"bad UTF-8", "{\"\xC3\x28\":{}}", 0, Code::kCorrupt, "header", "JSON"},
      {"lone surrogate", R"({"\ud800":{}})", 0, Code::kCorrupt, "header", "JSON"},
      {"tensor is null", R"({"a":null})", 0, Code::kCorrupt, "a", "null"},
      {"tensor is a number", R"({"a":1})", 0, Code::kCorrupt, "a", "number"},
      {"tensor is an array", R"({"a":[]})", 0, Code::kCorrupt, "a", "array"},
      {"no dtype", one(R"("shape":[1],"data_offsets":[0,4])"), 4, Code::kCorrupt, "a", "no dtype"},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,4])"), 4, Code::kCorrupt, "a", "no shape"},
      {"no offsets", one(R"("dtype":"F32","shape":[1])"), 4, Code::kCorrupt, "a", "no data_offsets"},
      {"unknown key", one(ok + R"(,"x":1)"), 4, Code::kCorrupt, "a", "unknown key x"},
      {"dtype twice", one(ok + R"(,"dtype":"F32")"), 4, Code::kCorrupt, "a", "twice"},
      {"dtype is a number", one(R"("dtype":1)"), 4, Code::kCorrupt, "a", "dtype"},
      {"dtype is an object", one(R"("dtype":{})"), 4, Code::kCorrupt, "a", "dtype"},
      {"shape is a number", one(R"("shape":1)"), 4, Code::kCorrupt, "a", "shape"},
      {"shape holds an array", one(R"("shape":[[1]])"), 4, Code::kCorrupt, "a", "shape"},
      {"shape holds a string", one(R"("shape":["1"])"), 4, Code::kCorrupt, "a", "shape"},
      {"offsets are a string", one(R"("data_offsets":"0")"), 4, Code::kCorrupt, "a", "data_offsets"},
      {"one offset", one(R"("data_offsets":[0])"), 4, Code::kCorrupt, "a", "not two"},
      {"three offsets", one(R"("data_offsets":[0,4,8])"), 4, Code::kCorrupt, "a", "more than two"},
      {"name twice", formatted(R"({{"a":{{{0}}},"a":{{{0}}}}})", ok), 4, Code::kCorrupt, "a", "twice"},
      {"name twice, spelled differently", formatted(R"({{"a":{{{0}}},"\u0061":{{{0}}}}})", ok), 4, Code::kCorrupt, "a",
       "twice"},
      {"newline in a name", R"({"a\nb":1})", 0, Code::kCorrupt, "a\\nb", "number"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(Safetensors, RefusesMetadataThatAreNotStrings) {
  const auto with = [](std::string_view value) { return formatted(R"({{"__metadata__":{}}})", value); };
  const std::vector<Refusal> refusals = {
      {"null", with("null"), 0, Code::kCorrupt, "__metadata__", "null"},
      {"string", with("\"x\""), 0, Code::kCorrupt, "__metadata__", "string"},
      {"number inside", with(R"({"k":1})"), 0, Code::kCorrupt, "header", "metadata k"},
      {"negative inside", with(R"({"k":-1})"), 0, Code::kCorrupt, "header", "metadata k"},
      {"null inside", with(R"({"k":null})"), 0, Code::kCorrupt, "header", "metadata k"},
      {"object inside", with(R"({"k":{}})"), 0, Code::kCorrupt, "header", "metadata k"},
      {"array inside", with(R"({"k":[]})"), 0, Code::kCorrupt, "header", "metadata k"},
      {"key twice", with(R"({"k":"1","k":"1"})"), 0, Code::kCorrupt, "header", "twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, Code::kCorrupt, "__metadata__", "twice"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(Safetensors, RefusesOffsetsThatDoNotTileTheData) {
  const auto two = [](std::string_view a, std::string_view b) {
    return object(tensor("a", "F32", "[1]", a) + "," + tensor("b", "F32", "[1]", b));
  };
  ASSERT_TRUE(SafetensorsFile::parse(framed(two("[0,4]", "[4,8]"), 8)).ok());
  const std::vector<Refusal> refusals = {
      {"same bytes", two("[0,4]", "[0,4]"), 4, Code::kCorrupt, "b", "overlaps"},
      {"overlap", two("[0,4]", "[2,6]"), 6, Code::kCorrupt, "b", "overlaps"},
      {"hole between", two("[0,4]", "[6,10]"), 10, Code::kCorrupt, "b", "hole"},
      {"hole before", two("[1,5]", "[5,9]"), 9, Code::kCorrupt, "a", "hole"},
      {"bytes behind", two("[0,4]", "[4,8]"), 9, Code::kCorrupt, "data", "behind"},
      {"out of range", two("[0,4]", "[4,8]"), 7, Code::kCorrupt, "b", "ends at"},
      {"far out of range", two("[0,4]", "[9223372036854775803,9223372036854775807]"), 8, Code::kCorrupt, "b",
       "ends at"},
      {"reversed", two("[0,4]", "[8,4]"), 8, Code::kCorrupt, "b", "reversed"},
      {"too short", two("[0,4]", "[4,7]"), 7, Code::kCorrupt, "b", "need 4"},
      {"too long", two("[0,4]", "[4,9]"), 9, Code::kCorrupt, "b", "need 4"},
      {"negative", two("[0,4]", "[-4,0]"), 8, Code::kCorrupt, "b", "negative"},
      {"minus zero", two("[-0,4]", "[4,8]"), 8, Code::kCorrupt, "a", "negative"},
      {"float", two("[0,4.0]", "[4,8]"), 8, Code::kCorrupt, "a", "no 64-bit integer"},
      {"exponent", two("[0,4e0]", "[4,8]"), 8, Code::kCorrupt, "a", "no 64-bit integer"},
      {"2^63", two("[0,9223372036854775808]", "[4,8]"), 8, Code::kCorrupt, "a", "2^63"},
      {"2^64", two("[0,18446744073709551616]", "[4,8]"), 8, Code::kCorrupt, "a", "no 64-bit integer"},
      {"boolean", two("[false,4]", "[4,8]"), 8, Code::kCorrupt, "a", "boolean"},
      {"empty tensor inside another",
       object(tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[0]", "[2,2]")), 4, Code::kCorrupt, "b",
       "overlaps"},
      {"empty tensor past the end", object(tensor("b", "F32", "[0]", "[2,2]")), 0, Code::kCorrupt, "b", "ends at"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(Safetensors, RefusesShapesAndDtypesThatDoNotFit) {
  const auto one = [](std::string_view dtype, std::string_view shape, std::string_view offsets = "[0,8]") {
    return object(tensor("t", dtype, shape, offsets));
  };
  ASSERT_TRUE(SafetensorsFile::parse(framed(one("F4", "[16]"), 8)).ok());
  std::string many = "[1";
  for (int i = 0; i < 32; ++i) many += ",1";
  const std::vector<Refusal> refusals = {
      {"unknown dtype", one("F99", "[1]"), 8, Code::kUnsupported, "t", "F99"},
      {"lower case", one("f32", "[2]"), 8, Code::kUnsupported, "t", "f32"},
      {"wrong dtype", one("F64", "[2]"), 8, Code::kCorrupt, "t", "need 16"},
      {"half a byte", one("F4", "[15]"), 8, Code::kCorrupt, "t", "whole number of bytes"},
      {"negative extent", one("F32", "[-2]"), 8, Code::kCorrupt, "t", "negative"},
      {"extent 2^63", one("F32", "[9223372036854775808]"), 8, Code::kCorrupt, "t", "2^63"},
      {"bytes pass 2^63", one("F32", "[2305843009213693952]"), 8, Code::kCorrupt, "t", "64 bits"},
      {"product wraps to 8 bytes", one("F32", "[4294967296,4294967296,2]"), 8, Code::kCorrupt, "t", "64 bits"},
      {"product wraps to 0", one("F32", "[4294967296,4294967296]", "[0,0]"), 0, Code::kCorrupt, "t", "64 bits"},
      {"nothing, but strides wrap", one("F32", "[0,4611686018427387904,4]", "[0,0]"), 0, Code::kCorrupt, "t",
       "64 bits"},
      {"33 extents", one("F32", many + "]"), 8, Code::kUnsupported, "t", "32 extents"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(Safetensors, StopsAtOnceInDeepOrEndlessJson) {
  const std::string deep(100'000, '[');
  expect_refused({"array in array", formatted(R"({{"a":{{"shape":{}}}}})", deep), 0, Code::kCorrupt, "a", "array"});
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  expect_refused({"object in object", objects, 0, Code::kCorrupt, "a", "unknown key"});
  expect_refused({"brackets", deep, 0, Code::kCorrupt, "header", "begin"});
  expect_refused({"a long number", formatted(R"({{"a":{{"shape":[{}]}}}})", std::string(100'000, '9')), 0,
                  Code::kCorrupt, "header", "JSON"});
}

TEST(Safetensors, KeepsToItsLimits) {
  const Bytes two = framed(object(tensor("a", "F32", "[0]", "[0,0]") + "," + tensor("b", "F32", "[0,1]", "[0,0]")), 0);
  SafetensorsLimits limits;
  limits.tensors = 2;
  limits.rank = 2;
  EXPECT_TRUE(SafetensorsFile::parse(two, limits).ok());
  limits.tensors = 1;
  EXPECT_EQ(SafetensorsFile::parse(two, limits).status().code(), Code::kUnsupported);
  limits.tensors = 2;
  limits.rank = 1;
  EXPECT_EQ(SafetensorsFile::parse(two, limits).status().argument(), "b");
  limits.rank = 2;
  limits.header_bytes = std::ssize(two) - 9;
  EXPECT_EQ(SafetensorsFile::parse(two, limits).status().code(), Code::kUnsupported);

  const Bytes notes = framed(R"({"__metadata__":{"a":"1","b":"2"}})", 0);
  limits = {};
  limits.metadata_entries = 2;
  EXPECT_TRUE(SafetensorsFile::parse(notes, limits).ok());
  limits.metadata_entries = 1;
  EXPECT_EQ(SafetensorsFile::parse(notes, limits).status().code(), Code::kUnsupported);

  limits = {};
  limits.file_bytes = 15;
  const std::string nothing = corpus("safetensors/nothing.safetensors").string();
  EXPECT_EQ(SafetensorsFile::open(nothing, limits).status().code(), Code::kUnsupported);
  limits.file_bytes = 16;
  EXPECT_TRUE(SafetensorsFile::open(nothing, limits).ok());
}

TEST(Safetensors, RefusesPathsThatAreNoRegularFile) {
  const Folder folder;
  for (const std::string& path : {folder / "absent", folder / "", std::string("/dev/null"), std::string()}) {
    const Result<SafetensorsFile> file = SafetensorsFile::open(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.status().code(), Code::kIo);
    EXPECT_EQ(file.status().argument(), "file");
  }
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsFile::open(folder / "pipe").status().code(), Code::kIo);
}

}  // namespace
}  // namespace seriatim::file
