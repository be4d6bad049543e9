// What attention reads and where: only the row, at addresses past 32 bits, and nothing from the heap.
#include <gtest/gtest.h>

#include <limits>

#include "support/attend.hpp"
#include "support/heap.hpp"
#include "support/mapped_memory.hpp"

namespace seriatim {
namespace {

using namespace testing;

TEST(AttendReads, NothingThatIsNotInTheRow) {
  AttendCase attend(small_attention(), 700, 61);
  attend.keep_only([](std::int64_t t) { return t / 4 % 3 == 1; });
  const Attended clean = attend.run();
  ASSERT_TRUE(clean.status.ok());
  std::vector<bool> chosen(700);
  for (const std::int32_t position : attend.row) chosen[static_cast<std::size_t>(position)] = true;
  std::int64_t spoilt = 0;
  for (std::int64_t t = 0; t < 700; ++t) {
    if (chosen[static_cast<std::size_t>(t)]) continue;
    for (std::int64_t i = 0; i < 16; ++i) {
      attend.keys.set(t * 16 + i, std::numeric_limits<float>::quiet_NaN());
      attend.values.set(t * 16 + i,
                        t % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN());
    }
    ++spoilt;
  }
  ASSERT_GT(spoilt, 400);
  EXPECT_TRUE(same_result(attend.run(), clean));
}

TEST(AttendReads, NoPageWithoutAChosenToken) {
  AttendCase attend(small_attention(), 700, 62);
  attend.keep_only([](std::int64_t t) { return t / 96 % 2 == 0; });
  const Attended clean = attend.run();
  PlainLayer layer = attend.layer();
  std::vector<bool> needed(static_cast<std::size_t>(layer.pages()));
  for (const std::int32_t position : attend.row)
    needed[static_cast<std::size_t>((position + attend.first_slot) / attend.page_tokens)] = true;
  std::int64_t forbidden = 0;
  for (std::int64_t page = 0; page < layer.pages(); ++page) {
    if (needed[static_cast<std::size_t>(page)]) continue;
    layer.forbid_page(page);
    ++forbidden;
  }
  ASSERT_GE(forbidden, 3);
  EXPECT_TRUE(same_result(attend.run(layer.view()), clean));
}

TEST(AttendReads, AnUnreadablePageWouldEndTheProcess) {
  // Shows that the test above could fail.
  AttendCase attend(small_attention(), 200, 63);
  PlainLayer layer = attend.layer();
  layer.forbid_page(2);
  EXPECT_DEATH((void)attend.run(layer.view()), "");
}

TEST(AttendMemory, NothingIsAllocated) {
  const AttendCase attend(small_attention(), 700, 64);
  const PlainLayer layer = attend.layer();
  std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(attend.geometry)));
  (void)attend.run();  // the kernels are chosen once in a process
  Attended result = attend.blank();
  const HeapUse use = heap_use_of([&] {
    result.status = attend_row(layer.view(), {0, 700}, attend.query.view(), attend.row, {}, scratch,
                               result.output.writable(), result.lse);
  });
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(use.calls, 0);
  EXPECT_EQ(heap_use_of([&] { scratch.resize(scratch.size() * 4); }).calls, 1) << "the counter counts";
}

TEST(AttendMemory, ScratchIsUsedOnlyAsFarAsStated) {
  const AttendCase attend(small_attention(), 700, 65);
  const PlainLayer layer = attend.layer();
  const auto stated = static_cast<std::size_t>(attend_scratch_floats(attend.geometry));
  std::vector<float> scratch(stated + 16, 123.0f);
  Attended result = attend.blank();
  result.status = attend_row(layer.view(), {0, 700}, attend.query.view(), attend.row, {}, scratch,
                             result.output.writable(), result.lse);
  EXPECT_TRUE(same_result(result, attend.oracle()));
  for (std::size_t i = stated; i < scratch.size(); ++i) EXPECT_EQ(scratch[i], 123.0f) << i;
}

// Kind of vllm#52109 and MSLK#257: offsets computed in 32 bits.
TEST(AttendAddresses, StridesOfQueriesAndOutputsPass32Bits) {
  AttendCase attend(small_attention(), 300, 66);
  const Attended plain = attend.run();
  for (const std::int64_t head_stride : {(std::int64_t{1} << 31) + 64, (std::int64_t{1} << 32) + 4}) {
    MappedMemory query_memory(3 * head_stride + 4096);
    MappedMemory output_memory(3 * head_stride + 4096);
    if (query_memory.data() == nullptr || output_memory.data() == nullptr) GTEST_SKIP() << "no such address space";
    Tensor query = dense_view(query_memory.data(), DType::kF32, {4, 8});
    Tensor output = dense_view(output_memory.data(), DType::kF32, {4, 8});
    query.stride_bytes = {head_stride, 12, 0, 0};
    output.stride_bytes = {head_stride, 8, 0, 0};
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = 0; i < 8; ++i) store_element(query.at(h, i), DType::kF32, attend.query.get(h * 8 + i));
    }
    std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(attend.geometry)));
    const PlainLayer layer = attend.layer();
    Attended far = attend.blank();
    far.status =
        attend_row(layer.view(), {0, 300}, seriatim::as_const(query), attend.row, {}, scratch, output, far.lse);
    ASSERT_TRUE(far.status.ok()) << far.status.message();
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = 0; i < 8; ++i) far.output.set(h * 8 + i, load_element(output.at(h, i), DType::kF32));
    }
    EXPECT_TRUE(same_result(far, plain)) << head_stride;
  }
}

TEST(AttendAddresses, KeysAndValuesMayLieBeyond32BitsOfAPage) {
  // One page of 2^26 + 48 tokens: the last ones lie past 2^32 bytes.
  AttendCase attend(small_attention(), 300, 67);
  const Attended plain = attend.run();
  const GroupBlock block = GroupBlock::of(attend.geometry);
  const std::int64_t page_tokens = (std::int64_t{1} << 26) + 48;
  MappedMemory page(page_tokens / block.tokens * block.bytes);
  if (page.data() == nullptr) GTEST_SKIP() << "no such address space";
  const std::byte* pages[] = {page.data()};
  LayerView view;
  view.geometry = &attend.geometry;
  view.run = {0, 300};
  view.pages = pages;
  view.page_tokens = page_tokens;
  view.first_slot = page_tokens - 300;
  view.set_cache_strides();
  for (std::int64_t t = 0; t < 300; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      std::memcpy(page.data() + block.key_at(view.first_slot + t, h), attend.keys.view().at(t, h), 32);
      std::memcpy(page.data() + block.value_at(view.first_slot + t, h), attend.values.view().at(t, h), 32);
    }
  }
  ASSERT_GT(block.key_at(view.first_slot, 0), std::int64_t{1} << 32);
  EXPECT_TRUE(same_result(attend.run(view), plain));
}

}  // namespace
}  // namespace seriatim
