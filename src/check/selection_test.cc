// What is refused before a row is judged, and what the runner promises whatever the executor.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "check/row_judge.hpp"
#include "seriatim/file.hpp"
#include "support/random.hpp"

namespace seriatim {
namespace {

using testing::Random;

class SelectionFile : public ::testing::Test {
 protected:
  SelectionFile() {
    path_ = (std::filesystem::temp_directory_path() / ("seriatim-check-" + std::to_string(::getpid()) + ".safetensors"))
                .string();
  }
  ~SelectionFile() override { std::filesystem::remove(path_); }

  // A dump of right rows: 6 queries over groups of 2, budget 4.
  struct Dump {
    Metadata metadata{{"seriatim", "selection/1"}, {"group_tokens", "2"}, {"budget_tokens", "4"}, {"engine", "test"}};
    std::vector<std::int32_t> rows{0, 1, 2, 3, 4,  0, 1, 2, 3, -1, 0,  1,  4,  5,  -1,
                                   0, 1, 4, 5, -1, 2, 3, 4, 5, 6,  -1, -1, -1, -1, -1};
    std::vector<std::int64_t> visible{5, 4, 6, 6, 7, 0};
    std::vector<float> scores{1, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, NAN, NAN, NAN, NAN};
    std::int64_t width = 5;
    std::int64_t groups = 4;
  };
  Status write(const Dump& dump, bool with_scores = true) {
    const std::int64_t count = std::ssize(dump.visible);
    std::vector<NamedTensor> tensors{
        {"visible", dense_view(dump.visible.data(), DType::kI64, {count})},
        {"rows", dense_view(dump.rows.data(), DType::kI32, {std::ssize(dump.rows) / dump.width, dump.width})}};
    if (with_scores)
      tensors.push_back({"scores", dense_view(dump.scores.data(), DType::kF32,
                                              {std::ssize(dump.scores) / dump.groups, dump.groups})});
    return write_safetensors(path_, dump.metadata, tensors);
  }
  // Opening, or judging, is refused with a message that holds these words.
  void refused(const Dump& dump, Code code, std::string_view words) {
    ASSERT_TRUE(write(dump).ok());
    const auto selection = open_selection(path_);
    Status status = selection.status();
    if (selection.ok()) status = check(**selection).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(words), std::string_view::npos) << status.message() << " lacks " << words;
  }
  std::string path_;
};

TEST_F(SelectionFile, RightRowsConform) {
  ASSERT_TRUE(write({}).ok());
  const auto selection = open_selection(path_);
  ASSERT_TRUE(selection.ok()) << selection.status().message();
  EXPECT_EQ((*selection)->about().engine, "test");
  const auto report = check(**selection);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->rows, 6);
  for (const Finding& finding : report->findings) ADD_FAILURE() << finding.row << ": " << finding.what;
  EXPECT_EQ(report->of(Promise::kRange).judged, 6);
  EXPECT_EQ(report->of(Promise::kRepeat).judged, 2);
  EXPECT_EQ(report->of(Promise::kMembership).judged, 3);
}

TEST_F(SelectionFile, MisfitsAreRefusedByName) {
  Dump dump;
  dump.metadata.erase("seriatim");
  refused(dump, Code::kCorrupt, "not a selection dump");
  dump = {};
  dump.metadata["seriatim"] = "selection/2";
  refused(dump, Code::kUnsupported, "selection/2");
  dump = {};
  dump.metadata.erase("budget_tokens");
  refused(dump, Code::kCorrupt, "budget_tokens");
  dump = {};
  dump.metadata["group_tokens"] = "2x";
  refused(dump, Code::kCorrupt, "2x");
  dump = {};
  dump.metadata["budget_tokens"] = "5";
  refused(dump, Code::kInvalidArgument, "budget_tokens");
  dump = {};
  dump.metadata["unit"] = "block";
  refused(dump, Code::kCorrupt, "unit");
  dump = {};
  dump.metadata["anchor"] = "-1";
  refused(dump, Code::kInvalidArgument, "anchor");
  dump = {};
  dump.visible = {5, 4, -6, 6, 7, 0};
  refused(dump, Code::kInvalidArgument, "row 2");
  dump = {};
  dump.visible = {5, 4, 10, 6, 7, 0};
  refused(dump, Code::kInvalidArgument, "row 2 sees 10 tokens");
  dump = {};
  dump.visible = {5, 4, 6};
  refused(dump, Code::kInvalidArgument, "3 counts for 6 rows");
  dump = {};
  dump.rows.clear();
  refused(dump, Code::kInvalidArgument, "0 rows");
  dump = {};
  dump.scores[17] = NAN;
  refused(dump, Code::kNotANumber, "group 1");
}

TEST_F(SelectionFile, WrongDtypesRanksAndLengthsAreRefused) {
  const std::vector<float> floats(30, 0.0f);
  const std::vector<std::int64_t> counts(6, 5);
  const auto refuses = [&](const char* name, ConstTensor rows, ConstTensor visible, ConstTensor scores) {
    std::vector<NamedTensor> tensors{{"rows", rows}, {"visible", visible}};
    if (!scores.empty()) tensors.push_back({"scores", scores});
    ASSERT_TRUE(write_safetensors(path_, Dump{}.metadata, tensors).ok());
    const auto selection = open_selection(path_);
    EXPECT_FALSE(selection.ok()) << name;
    EXPECT_EQ(selection.status().argument(), name) << selection.status().message();
  };
  const ConstTensor rows = dense_view(floats.data(), DType::kI32, {6, 5});
  const ConstTensor visible = dense_view(counts.data(), DType::kI64, {6});
  refuses("rows", dense_view(floats.data(), DType::kF32, {6, 5}), visible, {});
  refuses("rows", dense_view(floats.data(), DType::kI32, {30}), visible, {});
  refuses("rows", dense_view(floats.data(), DType::kI32, {6, 5, 1}), visible, {});
  refuses("visible", rows, dense_view(counts.data(), DType::kF32, {6}), {});
  refuses("visible", rows, dense_view(counts.data(), DType::kI64, {6, 1}), {});
  refuses("scores", rows, visible, dense_view(floats.data(), DType::kBf16, {6, 4}));
  refuses("scores", rows, visible, dense_view(floats.data(), DType::kF32, {5, 4}));
  refuses("scores", rows, visible, dense_view(floats.data(), DType::kF32, {24}));
}

TEST_F(SelectionFile, AFileThatIsCutIsRefusedOpenOrRead) {
  ASSERT_TRUE(write({}).ok());
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path_));
  const auto selection = open_selection(path_);
  ASSERT_TRUE(selection.ok());
  std::filesystem::resize_file(path_, static_cast<std::uintmax_t>(size - 96));  // the scores, as they were open already
  EXPECT_EQ(check(**selection).status().code(), Code::kIo);
  for (std::int64_t left : {size - 97, std::int64_t{100}, std::int64_t{7}, std::int64_t{0}}) {
    std::filesystem::resize_file(path_, static_cast<std::uintmax_t>(left));
    EXPECT_EQ(open_selection(path_).status().code(), Code::kCorrupt) << left;
  }
  EXPECT_EQ(open_selection(path_ + ".none").status().code(), Code::kIo);
}

TEST_F(SelectionFile, BytesAndFileGiveTheSameReport) {
  Dump dump;
  dump.rows[0] = 99;
  dump.rows[12] = 2;
  ASSERT_TRUE(write(dump).ok());
  const auto whole = SafetensorsFile::open(path_);
  std::vector<std::byte> bytes(std::filesystem::file_size(path_));
  std::FILE* in = std::fopen(path_.c_str(), "rb");
  ASSERT_EQ(std::fread(bytes.data(), 1, bytes.size(), in), bytes.size());
  std::fclose(in);
  const auto a = check(**open_selection(path_));
  const auto parsed = parse_selection(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const auto b = check(**parsed);
  ASSERT_EQ(a->findings.size(), b->findings.size());
  ASSERT_GE(a->findings.size(), 2u);
  for (std::size_t i = 0; i < a->findings.size(); ++i) EXPECT_EQ(a->findings[i].what, b->findings[i].what);
}

// Rows of equal input, of which the second comes in another order.
TEST(Repeat, TwoRowsOfEqualInputThatDifferAreNamedAsRepeatAlone) {
  const std::vector<std::int32_t> rows{4, 5, 0, 1, 6, 0, 1, 4, 5, 6, 0, 1, 2, 3, 6, 4, 5, 0, 1, 6};
  const std::vector<std::int32_t> visible{7, 7, 7, 7};
  const std::vector<float> scores{1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 1};  // the third has other scores
  Selection::About about;
  about.group_tokens = 2;
  about.budget_tokens = 4;
  for (const RowRule rule : {RowRule::kArrival, RowRule::kSet}) {
    const auto selection = view_selection({dense_view(rows.data(), DType::kI32, {4, 5}),
                                           dense_view(visible.data(), DType::kI32, {4}),
                                           dense_view(scores.data(), DType::kF32, {4, 3}),
                                           {}},
                                          about);
    ASSERT_TRUE(selection.ok()) << selection.status().message();
    CheckOptions options;
    options.rule = rule;
    const auto report = check(**selection, options);
    ASSERT_TRUE(report.ok());
    ASSERT_EQ(report->findings.size(), 1u);
    EXPECT_EQ(report->findings[0].promise, Promise::kRepeat);
    EXPECT_EQ(report->findings[0].row, 1);
    EXPECT_EQ(report->findings[0].other, 0);
    EXPECT_EQ(report->findings[0].entry, 0);
    EXPECT_EQ(report->of(Promise::kRepeat).judged, 3);
  }
}

TEST(Margin, AnExchangeWithinItIsNearAndNoFault) {
  const std::vector<std::int32_t> rows{2, 3};
  const std::vector<std::int32_t> visible{4};
  Selection::About about;
  about.group_tokens = 2;
  about.budget_tokens = 2;
  for (const float better : {1.00001f, 1.1f, INFINITY}) {
    const std::vector<float> scores{better, 1.0f};
    const auto selection = view_selection({dense_view(rows.data(), DType::kI32, {1, 2}),
                                           dense_view(visible.data(), DType::kI32, {1}),
                                           dense_view(scores.data(), DType::kF32, {1, 2}),
                                           {}},
                                          about);
    CheckOptions options;
    EXPECT_EQ(check(**selection, options)->findings.at(0).promise, Promise::kMembership);
    options.margin = 1e-3;
    const auto report = check(**selection, options);
    EXPECT_EQ(report->conforms(), better < 1.01f) << better;
    EXPECT_EQ(report->near_rows, better < 1.01f ? 1 : 0);
  }
}

TEST(Report, DoesNotDependOnTheExecutorAndKeepsAsManyFindingsAsAsked) {
  Random random(5);
  constexpr std::int64_t kRows = 9'000;
  std::vector<std::int32_t> rows;
  const std::vector<std::int32_t> visible(kRows, 9);
  std::vector<float> scores;
  for (std::int64_t i = 0; i < kRows * 5; ++i) rows.push_back(static_cast<std::int32_t>(random.below(9)));
  for (std::int64_t i = 0; i < kRows * 4; ++i) scores.push_back(static_cast<float>(random.below(3)));
  Selection::About about;
  about.group_tokens = 2;
  about.budget_tokens = 4;
  const auto selection = view_selection({dense_view(static_cast<const void*>(rows.data()), DType::kI32, {kRows, 5}),
                                         dense_view(static_cast<const void*>(visible.data()), DType::kI32, {kRows}),
                                         dense_view(static_cast<const void*>(scores.data()), DType::kF32, {kRows, 4}),
                                         {}},
                                        about);
  CheckOptions options;
  options.findings_per_promise = 7;
  const auto serial = check(**selection, options);
  ASSERT_TRUE(serial.ok());
  const auto executor = make_executor(4);
  options.executor = executor.get();
  const auto parallel = check(**selection, options);
  ASSERT_TRUE(parallel.ok());
  std::array<std::int64_t, kPromises> kept{};
  ASSERT_EQ(serial->findings.size(), parallel->findings.size());
  for (std::size_t i = 0; i < serial->findings.size(); ++i) {
    EXPECT_EQ(serial->findings[i].what, parallel->findings[i].what);
    ++kept[static_cast<std::size_t>(serial->findings[i].promise)];
  }
  EXPECT_EQ(serial->row_faults, parallel->row_faults);
  for (std::size_t i = 0; i < kPromises; ++i) {
    EXPECT_EQ(kept[i], std::min<std::int64_t>(7, serial->counts[i].faults)) << promise_name(static_cast<Promise>(i));
    EXPECT_LE(serial->counts[i].faults, serial->counts[i].judged);
  }
  EXPECT_GT(serial->of(Promise::kDuplicate).faults, 1'000);
}

TEST(Promises, EachHasANameAndSaysWhatItDemands) {
  for (std::size_t i = 0; i < kPromises; ++i) {
    const auto promise = static_cast<Promise>(i);
    EXPECT_EQ(promise_named(promise_name(promise)), promise);
    EXPECT_GT(promise_text(promise).size(), 60u);
  }
  EXPECT_EQ(promise_named("none"), std::nullopt);
}

}  // namespace
}  // namespace seriatim
