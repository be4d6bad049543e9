#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "base/format.hpp"
#include "file/consistent.hpp"
#include "seriatim/file.hpp"
#include "support/file.hpp"

namespace seriatim::file {
namespace {

// A version 1.0 file of this header and so many data bytes.
Bytes npy(std::string_view header, std::size_t data_bytes, std::string_view version = {"\1\0", 2}) {
  std::string text = "\x93NUMPY";
  text += version;
  text += static_cast<char>(header.size() & 0xFFU);
  text += static_cast<char>(header.size() >> 8U);
  text += header;
  text.append(data_bytes, '\x5A');
  return to_bytes(text);
}

std::string header(std::string_view shape, std::string_view descr = "'<f4'", std::string_view order = "False") {
  return formatted("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}\n", descr, order, shape);
}

void expect_refused(const Bytes& bytes, Code code, std::string_view argument, std::string_view reason) {
  SCOPED_TRACE(reason);
  const Result<NpyArray> array = NpyArray::parse(bytes);
  ASSERT_FALSE(array.ok());
  EXPECT_EQ(array.status().code(), code);
  EXPECT_EQ(array.status().argument(), argument);
  EXPECT_NE(array.status().message().find(reason), std::string_view::npos) << array.status().message();
}

template <typename T, std::size_t N>
void expect_corpus(const char* name, DType dtype, int rank, std::array<std::int64_t, 4> shape,
                   std::array<T, N> values) {
  SCOPED_TRACE(name);
  const Result<NpyArray> array = NpyArray::open(corpus(formatted("npy/{}.npy", name)).string());
  ASSERT_TRUE(array.ok()) << array.status().message();
  const ConstTensor& view = array->view();
  EXPECT_EQ(view.dtype, dtype);
  EXPECT_EQ(view.rank, rank);
  EXPECT_EQ(view.shape, shape);
  ASSERT_EQ(view_bytes(view), static_cast<std::int64_t>(sizeof(T) * N));
  EXPECT_EQ(std::memcmp(view.data, values.data(), sizeof(T) * N), 0);
}

TEST(Npy, ReadsWhatNumPyWrote) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  expect_corpus("f4_1d", DType::kF32, 1, {3, 1, 1, 1},
                std::array<float, 3>{1.5F, -kInfinity, std::numeric_limits<float>::quiet_NaN()});
  const std::array<float, 6> grid{-2.5F, -1.5F, -0.5F, 0.5F, 1.5F, 2.5F};
  for (const char* name : {"f4_2d", "f4_2d_v2", "f4_2d_v3"}) expect_corpus(name, DType::kF32, 2, {2, 3, 1, 1}, grid);
  expect_corpus("f2_3d", DType::kF16, 3, {1, 2, 2, 1}, std::array<std::uint16_t, 4>{0, 0x3C00, 0x4000, 0x4200});
  expect_corpus("i4_4d", DType::kI32, 4, {1, 2, 1, 2}, std::array<std::int32_t, 4>{0, 1, 2, 3});
  expect_corpus(
      "i8_1d", DType::kI64, 1, {2, 1, 1, 1},
      std::array<std::int64_t, 2>{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()});
  const Result<NpyArray> none = NpyArray::open(corpus("npy/f4_none.npy").string());
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->view().shape, (std::array<std::int64_t, 4>{0, 3, 1, 1}));
  EXPECT_EQ(touch(none->view()), 0U);
}

TEST(Npy, RefusesByNameWhatNumPyMayWriteButHasNoView) {
  const auto refused = [](const char* name, std::string_view reason, Code code = Code::kUnsupported) {
    expect_refused(slurp(corpus(formatted("npy/bad_{}.npy", name))), code, "header", reason);
  };
  refused("fortran", "Fortran order");
  refused("f8", "<f8");
  refused("big_endian", ">f4");
  refused("fields", "fields");
  refused("scalar", "rank 0");
  refused("huge_shape", "64 bits", Code::kCorrupt);
  refused("twice", "'descr' twice", Code::kCorrupt);
  refused("call", "'{'", Code::kCorrupt);
}

TEST(Npy, FortranOrderOfOneAxisIsNoOrder) {
  const Bytes bytes = npy(header("(2,)", "'<f4'", "True"), 8);
  ASSERT_TRUE(NpyArray::parse(bytes).ok());
}

TEST(Npy, RefusesTruncationAtEveryByte) {
  for (const char* name : {"npy/f4_2d.npy", "npy/f4_2d_v2.npy", "npy/i8_1d.npy"}) {
    const Bytes whole = slurp(corpus(name));
    ASSERT_TRUE(NpyArray::parse(whole).ok());
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      const Result<NpyArray> array = NpyArray::parse(cut);
      ASSERT_FALSE(array.ok()) << name << size;
      ASSERT_EQ(array.status().code(), Code::kCorrupt) << name << size;
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    expect_refused(longer, Code::kCorrupt, "data", "need");
  }
}

TEST(Npy, AnyChangedByteIsRefusedOrGivesAConsistentArray) {
  std::int64_t refused = 0;
  std::int64_t admitted = 0;
  for (const char* name : {"npy/f4_2d.npy", "npy/f4_2d_v3.npy", "npy/f4_none.npy"}) {
    for_each_one_byte_change(slurp(corpus(name)), [&](const Bytes& bytes, std::size_t at) {
      const Result<NpyArray> array = NpyArray::parse(bytes);
      ++(array.ok() ? admitted : refused);
      if (array.ok()) {
        ASSERT_TRUE(consistent(*array, bytes)) << name << " byte " << at;
      } else {
        ASSERT_TRUE(array.status().code() == Code::kCorrupt || array.status().code() == Code::kUnsupported) << at;
      }
    });
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(admitted, 1000);  // changed data
}

TEST(Npy, TakesTheDictionaryInAnySpellingOfPython) {
  for (const char* text : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
                           "{\"shape\":(2,),'descr':\"<f4\",'fortran_order':False}",
                           "{ 'fortran_order' : False ,'shape' : ( 2 , ) , 'descr' : '<f4' } \n \n"}) {
    EXPECT_TRUE(NpyArray::parse(npy(text, 8)).ok()) << text;
  }
  EXPECT_TRUE(NpyArray::parse(npy(header("(1, 2)"), 8)).ok());
  EXPECT_TRUE(NpyArray::parse(npy(header("(1, 2,)"), 8)).ok());
  EXPECT_TRUE(NpyArray::parse(npy(header("(0,)"), 0)).ok());
}

TEST(Npy, RefusesHeadersThatAreNotTheKnownDictionary) {
  const std::string two = "'descr': '<f4', 'fortran_order': False";
  const std::array<std::pair<std::string, const char*>, 26> cases{{
      {"", "'{'"},
      {"[]", "'{'"},
      {"{}", "no 'descr'"},
      {"{" + two + "}", "no 'shape'"},
      {"{'descr': '<f4', 'shape': (2,)}", "no 'fortran_order'"},
      {"{" + two + ", 'shape': (2,), 'x': 1}", "unknown key x"},
      {"{" + two + ", 'shape': (2,), 'shape': (2,)}", "'shape' twice"},
      {"{'fortran_order': False, 'fortran_order': False}", "'fortran_order' twice"},
      {"{" + two + ", 'shape': (2,)", "neither ',' nor '}'"},
      {"{" + two + ", 'shape': (2,)} x", "goes on"},
      {"{" + two + ", 'shape': (2,)}}", "goes on"},
      {"{,}", "key"},
      {"{" + two + ",, 'shape': (2,)}", "key"},
      {"{descr: '<f4'}", "key"},
      {"{'descr' '<f4'}", "':'"},
      {"{'descr': 1}", "plain string"},
      {"{'descr': '<f4}", "plain string"},
      {"{'descr': '\\x3cf4'}", "plain string"},
      {"{'fortran_order': 0}", "neither True nor False"},
      {"{'shape': 2}", "tuple"},
      {"{'shape': [2]}", "tuple"},
      {"{'shape': (2)}", "not a tuple"},
      {"{'shape': (,)}", "decimal number"},
      {"{'shape': (2 2)}", "','"},
      {"{'shape': (2,,)}", "decimal number"},
      {"{'shape': (2,", "decimal number"},
  }};
  for (const auto& [text, reason] : cases) expect_refused(npy(text, 8), Code::kCorrupt, "header", reason);
}

TEST(Npy, RefusesExtentsThatAreNoPlainNumbers) {
  for (const char* extent : {"-1", "+1", "-0", "01", "1.0", "1e3", "0x2", "1_0", "2L", "True", "9223372036854775808",
                             "99999999999999999999999999", "(1,)", "'2'", "2*1"}) {
    const Result<NpyArray> array = NpyArray::parse(npy(header(formatted("({},)", extent)), 8));
    ASSERT_FALSE(array.ok()) << extent;
    EXPECT_EQ(array.status().code(), Code::kCorrupt) << extent;
  }
}

TEST(Npy, RefusesSizesThatDoNotFit) {
  expect_refused(npy(header("(2,)"), 7), Code::kCorrupt, "data", "need 8");
  expect_refused(npy(header("(2,)"), 9), Code::kCorrupt, "data", "need 8");
  expect_refused(npy(header("(4294967296, 4294967296)"), 0), Code::kCorrupt, "header", "64 bits");
  expect_refused(npy(header("(2305843009213693952,)"), 0), Code::kCorrupt, "header", "64 bits");
  expect_refused(npy(header("(0, 9223372036854775807)"), 0), Code::kCorrupt, "header", "64 bits");
  expect_refused(npy(header("(1, 1, 1, 1, 2)"), 8), Code::kUnsupported, "header", "rank 5");
  std::string many = "(1";
  for (int i = 0; i < 40; ++i) many += ", 1";
  expect_refused(npy(header(many + ")"), 4), Code::kUnsupported, "header", "32 extents");
}

TEST(Npy, RefusesOtherVersionsMagicAndLongHeaders) {
  const std::string one = header("(2,)");
  ASSERT_TRUE(NpyArray::parse(npy(one, 8)).ok());
  for (const std::string_view version :
       {std::string_view("\0\0", 2), std::string_view("\4\0", 2), std::string_view("\1\1", 2)}) {
    expect_refused(npy(one, 8, version), Code::kUnsupported, "header", "version");
  }
  Bytes magic = npy(one, 8);
  magic[0] = std::byte{0x94};
  expect_refused(magic, Code::kCorrupt, "header", ".npy");
  Bytes long_header = slurp(corpus("npy/f4_2d_v2.npy"));
  const std::uint32_t length = 65'537;
  std::memcpy(long_header.data() + 8, &length, sizeof length);
  expect_refused(long_header, Code::kUnsupported, "header", "limit");
  expect_refused(npy("{" + std::string(60'000, '('), 0), Code::kCorrupt, "header", "key");
}

TEST(Npy, WritesTheBytesOfNumPyForSmallArrays) {
  const Folder folder;
  for (const char* name : {"f4_1d", "f4_2d", "f4_none", "f2_3d", "i4_4d", "i8_1d"}) {
    const std::string original = corpus(formatted("npy/{}.npy", name)).string();
    const Result<NpyArray> array = NpyArray::open(original);
    ASSERT_TRUE(array.ok());
    ASSERT_TRUE(write_npy(folder / "copy", array->view()).ok());
    EXPECT_GE(slurp(original).size(), 128U);
    EXPECT_EQ(slurp(folder / "copy"), slurp(original)) << name;
  }
}

TEST(Npy, WritesStridedViewsRowMajor) {
  const Folder folder;
  const std::array<std::int32_t, 6> data{0, 1, 2, 3, 4, 5};
  ConstTensor transposed = dense_view(data.data(), DType::kI32, {3, 2});
  transposed.stride_bytes = {4, 12, 0, 0};
  ASSERT_TRUE(write_npy(folder / "file", transposed).ok());
  const Result<NpyArray> array = NpyArray::open(folder / "file");
  ASSERT_TRUE(array.ok());
  const std::array<std::int32_t, 6> expected{0, 3, 1, 4, 2, 5};
  EXPECT_EQ(std::memcmp(array->view().data, expected.data(), sizeof expected), 0);
}

TEST(Npy, WriteRefusesWhatItCannotSayAndLeavesTheOldFile) {
  const Folder folder;
  const std::array<std::int32_t, 2> data{};
  ASSERT_TRUE(write_npy(folder / "file", dense_view(data.data(), DType::kI32, {2})).ok());
  const Bytes old = slurp(folder / "file");
  EXPECT_EQ(write_npy(folder / "file", dense_view(data.data(), DType::kBf16, {2})).code(), Code::kUnsupported);
  EXPECT_EQ(write_npy(folder / "file", dense_view(data.data(), DType::kI32, {})).code(), Code::kInvalidArgument);
  ConstTensor backwards = dense_view(data.data(), DType::kI32, {2});
  backwards.stride_bytes[0] = -4;
  EXPECT_EQ(write_npy(folder / "file", backwards).argument(), "array");
  EXPECT_EQ(write_npy(folder / "absent/file", dense_view(data.data(), DType::kI32, {2})).code(), Code::kIo);
  EXPECT_EQ(slurp(folder / "file"), old);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

}  // namespace
}  // namespace seriatim::file
