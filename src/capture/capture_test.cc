// A capture is admitted only when every tensor fits the geometry; what does not fit is named.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "seriatim/replay.hpp"
#include "support/folder.hpp"

namespace seriatim {
namespace {

// In a folder of this process's, removed at its end.
std::string scratch_path(const char* name) {
  static const file::Folder folder;
  return folder / name;
}

// A small capture that can be damaged before it is written. The right answer to it is the library's own.
struct Draft {
  Metadata metadata{
      {"seriatim", "capture/1"},
      {"geometry", R"({"group_tokens":2,"budget_tokens":4,"query_heads":2,"kv_heads":1,"head_dim":3,"index_heads":2,)"
                   R"("index_dim":4,"index_rotary_dim":2,"rope_theta":100.0,"norm_eps":1e-6})"},
      {"anchor", "5"},
      {"source", "a test"}};
  struct Part {
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Part> parts;

  template <typename T>
  void put(const std::string& name, DType dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
    Part part{dtype, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
    if (!values.empty()) std::memcpy(part.bytes.data(), values.data(), part.bytes.size());
    parts[name] = std::move(part);
  }

  Draft() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto floats = [&](std::int64_t n) {
      std::vector<float> v(static_cast<std::size_t>(n));
      for (float& x : v) x = normal(random);
      return v;
    };
    put("index_keys", DType::kF32, {12, 4}, floats(48));
    put("index_norm_weight", DType::kF32, {4}, floats(4));
    put("index_queries", DType::kF32, {3, 2, 4}, floats(24));
    put("queries", DType::kF32, {3, 2, 3}, floats(18));
    put("keys", DType::kF32, {12, 1, 3}, floats(36));
    put("values", DType::kF32, {12, 1, 3}, floats(36));
    put("query_positions", DType::kI64, {3}, std::vector<std::int64_t>{5, 9, 16});
  }

  std::string write() const {
    const std::string path = scratch_path("draft.safetensors");
    std::vector<NamedTensor> tensors;
    for (const auto& [name, part] : parts) {
      ConstTensor view = part.shape.size() == 1 ? dense_view(part.bytes.data(), part.dtype, {part.shape[0]})
                         : part.shape.size() == 2
                             ? dense_view(part.bytes.data(), part.dtype, {part.shape[0], part.shape[1]})
                             : dense_view(part.bytes.data(), part.dtype, {part.shape[0], part.shape[1], part.shape[2]});
      tensors.push_back({name, view});
    }
    EXPECT_TRUE(write_safetensors(path, metadata, tensors).ok());
    return path;
  }
};

TEST(Capture, AWellFormedOneIsReadWhole) {
  const auto capture = Capture::open(Draft().write());
  ASSERT_TRUE(capture.ok()) << capture.status().message();
  EXPECT_EQ(capture->anchor, 5);
  EXPECT_EQ(capture->tokens(), 12);
  EXPECT_EQ(capture->query_positions, (std::vector<std::int64_t>{5, 9, 16}));
  EXPECT_EQ(capture->geometry.value_dim(), 3);
  EXPECT_EQ(capture->source, "a test");
}

TEST(Capture, SinksJoinTheSoftmaxAndTakeTheirShareOfIt) {
  Draft draft;
  const auto plain = Capture::open(draft.write());
  ASSERT_TRUE(plain.ok());
  draft.put("sinks", DType::kF32, {2}, std::vector<float>{-1.0f, 40.0f});
  const auto sunk = Capture::open(draft.write());
  ASSERT_TRUE(sunk.ok()) << sunk.status().message();
  const auto before = replay(*plain), after = replay(*sunk);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(before->rows, after->rows);
  for (std::size_t q = 0; q < 3; ++q) {
    EXPECT_GT(after->lse[2 * q], before->lse[2 * q]);
    EXPECT_LT(after->lse[2 * q], before->lse[2 * q] + 10.0f);
    EXPECT_NEAR(after->lse[2 * q + 1], 40.0f, 1.0f);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(std::abs(after->output[q * 6 + 3 + i]), 1e-6f);
  }
}

struct Damage {
  const char* name;
  const char* argument;  // what the error must name
  std::function<void(Draft&)> apply;
};

void replace(Draft& draft, const char* key, std::string_view from, std::string_view to) {
  std::string& text = draft.metadata[key];
  const auto at = text.find(from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, from.size(), to);
}

class DamagedCapture : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedCapture, IsRefusedByName) {
  Draft draft;
  GetParam().apply(draft);
  const auto capture = Capture::open(draft.write());
  ASSERT_FALSE(capture.ok());
  EXPECT_EQ(capture.status().argument(), GetParam().argument) << capture.status().message();
  EXPECT_NE(capture.status().message().find(GetParam().argument), std::string_view::npos) << capture.status().message();
}

const Damage kDamages[] = {
    {"NoVersion", "metadata", [](Draft& d) { d.metadata.erase("seriatim"); }},
    {"AnotherVersion", "metadata", [](Draft& d) { d.metadata["seriatim"] = "capture/2"; }},
    {"NoGeometry", "geometry", [](Draft& d) { d.metadata.erase("geometry"); }},
    {"GeometryIsAList", "geometry", [](Draft& d) { d.metadata["geometry"] = "[1]"; }},
    {"GeometryIsDeep", "geometry", [](Draft& d) { d.metadata["geometry"] = std::string(100000, '['); }},
    {"GeometryLacksAKey", "geometry", [](Draft& d) { replace(d, "geometry", "\"kv_heads\":1,", ""); }},
    {"GeometryHasAFraction", "geometry",
     [](Draft& d) { replace(d, "geometry", "\"kv_heads\":1", "\"kv_heads\":1.5"); }},
    {"GeometryHasAHugeInteger", "geometry",
     [](Draft& d) { replace(d, "geometry", "\"kv_heads\":1", "\"kv_heads\":18446744073709551615"); }},
    {"GeometryHasAnUnknownKey", "geometry", [](Draft& d) { replace(d, "geometry", "{", "{\"window\":3,"); }},
    {"ZeroHeads", "kv_heads", [](Draft& d) { replace(d, "geometry", "\"kv_heads\":1", "\"kv_heads\":0"); }},
    {"BudgetNotAMultiple", "budget_tokens",
     [](Draft& d) { replace(d, "geometry", "\"budget_tokens\":4", "\"budget_tokens\":5"); }},
    {"AnchorIsAWord", "anchor", [](Draft& d) { d.metadata["anchor"] = "five"; }},
    {"AnchorIsNegative", "anchor", [](Draft& d) { d.metadata["anchor"] = "-1"; }},
    {"AnchorIsFar", "visible", [](Draft& d) { d.metadata["anchor"] = "2147483640"; }},
    {"NoKeys", "keys", [](Draft& d) { d.parts.erase("keys"); }},
    {"NoIndexKeys", "index_keys", [](Draft& d) { d.parts.erase("index_keys"); }},
    {"NoNormWeight", "index_norm_weight", [](Draft& d) { d.parts.erase("index_norm_weight"); }},
    {"NoQueries", "queries", [](Draft& d) { d.parts.erase("queries"); }},
    {"SinksForOtherHeads", "sinks", [](Draft& d) { d.put("sinks", DType::kF32, {3}, std::vector<float>(3)); }},
    {"NoPositions", "query_positions", [](Draft& d) { d.parts.erase("query_positions"); }},
    {"FewerIndexKeys", "index_keys",
     [](Draft& d) { d.put("index_keys", DType::kF32, {11, 4}, std::vector<float>(44)); }},
    {"WiderKeys", "keys", [](Draft& d) { d.put("keys", DType::kF32, {12, 1, 4}, std::vector<float>(48)); }},
    {"FlatKeys", "keys", [](Draft& d) { d.put("keys", DType::kF32, {12, 3}, std::vector<float>(36)); }},
    {"IntegerKeys", "keys", [](Draft& d) { d.put("keys", DType::kI32, {12, 1, 3}, std::vector<std::int32_t>(36)); }},
    {"ValuesOfAnotherDtype", "values",
     [](Draft& d) { d.put("values", DType::kBf16, {12, 1, 3}, std::vector<std::uint16_t>(36)); }},
    {"QueriesOfAnotherCount", "queries",
     [](Draft& d) { d.put("queries", DType::kF32, {2, 2, 3}, std::vector<float>(12)); }},
    {"WeightsOfAnotherShape", "index_head_weights",
     [](Draft& d) { d.put("index_head_weights", DType::kF32, {3, 1}, std::vector<float>(3)); }},
    {"InvFreqOfAnotherLength", "inv_freq",
     [](Draft& d) { d.put("inv_freq", DType::kF32, {2}, std::vector<float>(2)); }},
    {"RowsOfAnotherWidth", "expected_rows",
     [](Draft& d) { d.put("expected_rows", DType::kI32, {3, 4}, std::vector<std::int32_t>(12)); }},
    {"OutputOfAnotherShape", "expected_output",
     [](Draft& d) { d.put("expected_output", DType::kF32, {3, 2, 2}, std::vector<float>(12)); }},
    {"PositionsOfAnotherDtype", "query_positions",
     [](Draft& d) { d.put("query_positions", DType::kI32, {3}, std::vector<std::int32_t>(3)); }},
    {"APositionBeforeTheAnchor", "query_positions",
     [](Draft& d) { d.put("query_positions", DType::kI64, {3}, std::vector<std::int64_t>{4, 9, 16}); }},
    {"APositionPastTheTokens", "query_positions",
     [](Draft& d) { d.put("query_positions", DType::kI64, {3}, std::vector<std::int64_t>{5, 9, 17}); }},
    {"PositionsOutOfOrder", "query_positions",
     [](Draft& d) { d.put("query_positions", DType::kI64, {3}, std::vector<std::int64_t>{9, 5, 16}); }},
};

INSTANTIATE_TEST_SUITE_P(Kinds, DamagedCapture, ::testing::ValuesIn(kDamages),
                         [](const auto& damage) { return std::string(damage.param.name); });

TEST(Capture, AMissingFileIsAnIoError) {
  EXPECT_EQ(Capture::open(scratch_path("is-not-there")).status().code(), Code::kIo);
}

TEST(Replay, ACaptureOfItsOwnAnswerAgreesExactly) {
  Draft draft;
  const auto first = replay(*Capture::open(draft.write()));
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->count(Agreement::kNotGiven), 3);
  draft.put("expected_rows", DType::kI32, {3, 5}, first->rows);
  draft.put("expected_output", DType::kF32, {3, 2, 3}, first->output);
  const auto second = replay(*Capture::open(draft.write()));
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(second->count(Agreement::kExact), 3);
  EXPECT_EQ(second->difference_expected_rows, 0.0);
  EXPECT_TRUE(second->agrees());
  EXPECT_EQ(second->rows_digest, first->rows_digest);
  EXPECT_EQ(second->output_digest, first->output_digest);
  EXPECT_EQ(second->done.dense_rows, 2) << "1 and 5 visible tokens fit a row of 5; 12 do not";
}

TEST(Replay, AFlippedOutputDisagrees) {
  Draft draft;
  auto first = replay(*Capture::open(draft.write()));
  ASSERT_TRUE(first.ok());
  draft.put("expected_rows", DType::kI32, {3, 5}, first->rows);
  first->output[7] += 0.5f;
  draft.put("expected_output", DType::kF32, {3, 2, 3}, first->output);
  const auto second = replay(*Capture::open(draft.write()));
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(second->agrees());
  EXPECT_EQ(second->worst_query, 1);
}

TEST(Replay, AnExpectedRowThatCannotBeReadIsWrongNotACrash) {
  Draft draft;
  std::vector<std::int32_t> rows(15, std::numeric_limits<std::int32_t>::max());
  draft.put("expected_rows", DType::kI32, {3, 5}, rows);
  draft.put("expected_output", DType::kF32, {3, 2, 3}, std::vector<float>(18));
  const auto done = replay(*Capture::open(draft.write()));
  ASSERT_TRUE(done.ok()) << done.status().message();
  EXPECT_EQ(done->count(Agreement::kWrong), 3);
  EXPECT_FALSE(done->agrees());
}

TEST(Replay, NonFiniteKeysAreRefusedWithTheirToken) {
  Draft draft;
  std::vector<float> keys(36, 1.0f);
  keys[3 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();
  draft.put("keys", DType::kF32, {12, 1, 3}, keys);
  const auto done = replay(*Capture::open(draft.write()));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.status().code(), Code::kNotFinite);
  EXPECT_EQ(done.status().argument(), "keys");
  EXPECT_EQ(done.status().place().row, 4);
}

TEST(Replay, IsWrittenAndReadBack) {
  const auto capture = Capture::open(Draft().write());
  const auto done = replay(*capture);
  const std::string path = scratch_path("replayed.safetensors");
  ASSERT_TRUE(write_replay(path, *capture, *done).ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->metadata().at("seriatim"), "replay/1");
  const auto output = file->find("output");
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(std::memcmp(output->data, done->output.data(), done->output.size() * 4), 0);
  EXPECT_EQ(file->names(), (std::vector<std::string>{"rows", "counts", "output", "lse"}));
}

}  // namespace
}  // namespace seriatim
