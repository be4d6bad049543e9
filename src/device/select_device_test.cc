// Selection and rows on the device at every count of the contract's edges up to 262,144 visible tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "device/device_testing.hpp"
#include "device/workspace.hpp"
#include "seriatim/row.hpp"

namespace seriatim::testing {
namespace {

constexpr std::int64_t kVisible[] = {0, 1, 2, 3, 4, 5, 2047, 2048, 2049, 2050, 2051, 2052, 8191, 8192, 8193, 16'384, 65'536, 131'072, 262'144};

enum class Scores : std::uint8_t { kNormal, kFewValues, kEqual, kAscending, kDescending, kHalfZero, kExtreme };
constexpr Scores kScores[] = {Scores::kNormal, Scores::kFewValues, Scores::kEqual, Scores::kAscending, Scores::kDescending, Scores::kHalfZero, Scores::kExtreme};

std::vector<float> draw(Scores kind, std::int64_t groups, Random& random) {
  std::vector<float> scores;
  for (std::int64_t g = 0; g < groups; ++g) {
    switch (kind) {
      case Scores::kNormal: scores.push_back(random.normal()); break;
      case Scores::kFewValues: scores.push_back(static_cast<float>(random.below(7))); break;
      case Scores::kEqual: scores.push_back(0.25f); break;
      case Scores::kAscending: scores.push_back(static_cast<float>(g)); break;
      case Scores::kDescending: scores.push_back(static_cast<float>(-g)); break;
      case Scores::kHalfZero: scores.push_back(random.below(2) == 0 ? (random.below(2) == 0 ? 0.0f : -0.0f) : std::fabs(random.normal())); break;
      case Scores::kExtreme: {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        const float values[] = {kInfinity, -kInfinity, std::numeric_limits<float>::denorm_min(), -std::numeric_limits<float>::denorm_min(),
                                std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(), 0.0f, -0.0f};
        scores.push_back(values[random.below(8)]);
        break;
      }
    }
  }
  return scores;
}

// One geometry on the device, whose score buffer the test fills itself.
class Selector {
 public:
  Selector(const std::shared_ptr<Device>& device, std::int64_t group_tokens, std::int64_t keep) : device_(device), work_(make(device, group_tokens, keep)) {}

  // The device's row for these scores, padding included, and its width at the end.
  std::vector<std::int32_t> row(std::int64_t visible, const std::vector<float>& scores) {
    DeviceWorkspace::Impl& work = work_.impl();
    Device::Impl& driver = device_->impl();
    std::vector<std::int32_t> row(static_cast<std::size_t>(work.geometry.row_capacity()) + 1);
    device::LayerArgs layer{};
    layer.anchor = kAnchor;
    const std::int32_t refuse = 0;
    EXPECT_TRUE(driver.write(work.visible, 0, &visible, 8).ok());
    EXPECT_TRUE(driver.write(work.scores, 0, scores.data(), static_cast<std::int64_t>(scores.size()) * 4).ok());
    EXPECT_TRUE(driver.launch(*work.program, device::Kernel::kSelect, {1}, work.scores, work.visible, work.chosen, work.counts, work.first_nan, work.shape,
                              work.score_stride, refuse).ok());
    EXPECT_TRUE(driver.launch(*work.program, device::Kernel::kRow, {device::groups_of(work.geometry.row_capacity(), driver.work_group)}, work.chosen, work.counts,
                              work.visible, work.rows, work.widths, layer, work.shape).ok());
    EXPECT_TRUE(driver.read(work.rows, row.data(), work.geometry.row_capacity() * 4).ok());
    EXPECT_TRUE(driver.read(work.widths, &row.back(), 4).ok());
    EXPECT_TRUE(driver.finish().ok());
    return row;
  }

  std::vector<std::int32_t> due(std::int64_t visible, const std::vector<float>& scores) {
    const Geometry& geometry = work_.impl().geometry;
    std::vector<std::int32_t> row(static_cast<std::size_t>(geometry.row_capacity()) + 1);
    std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(geometry, visible)));
    const auto width = plan_row(geometry, {kAnchor, visible}, scores, NanPolicy::kRefuse, scratch, std::span(row).first(row.size() - 1));
    EXPECT_TRUE(width.ok()) << width.status().message();
    row.back() = static_cast<std::int32_t>(*width);
    return row;
  }

 private:
  static constexpr std::int64_t kAnchor = 11;

  static DeviceWorkspace make(const std::shared_ptr<Device>& device, std::int64_t group_tokens, std::int64_t keep) {
    GeometryOptions options = small_path(group_tokens);
    options.budget_tokens = keep * group_tokens;
    return DeviceStory::must(DeviceWorkspace::create(device, *Geometry::admit(options), 262'144, 1));
  }

  std::shared_ptr<Device> device_;
  DeviceWorkspace work_;
};

TEST(DeviceSelect, EveryCountBudgetGroupAndDistributionGivesTheHostsRow) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const auto device = open_device();
  ASSERT_NE(device, nullptr);
  Random random(7);
  std::int64_t rows = 0;
  for (const std::int64_t r : {1, 2, 3, 4}) {
    for (const std::int64_t keep : {1, 64, 512, 2048}) {
      Selector selector(device, r, keep);
      for (const std::int64_t visible : kVisible) {
        for (const Scores kind : kScores) {
          // The largest sizes sparsely: each with the geometries in turn.
          if (visible >= 65'536 && (rows + r + keep) % 3 != 0) {
            ++rows;
            continue;
          }
          const auto scores = draw(kind, visible / r, random);
          ASSERT_TRUE(same_bytes<std::int32_t>(selector.row(visible, scores), selector.due(visible, scores)))
              << visible << " visible, K " << keep << ", r " << r << ", distribution " << static_cast<int>(kind);
          ++rows;
        }
      }
    }
  }
  EXPECT_EQ(rows, 4 * 4 * 19 * 7);
}

TEST(DeviceSelect, WorkGroupsOfAnySizeChooseAlike) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  Random random(8);
  const auto scores = draw(Scores::kFewValues, 5000, random);
  for (const std::int64_t work_group : {1, 5, 32, 1024}) {
    const auto device = open_device(work_group);
    ASSERT_NE(device, nullptr);
    Selector selector(device, 4, 512);
    ASSERT_TRUE(same_bytes<std::int32_t>(selector.row(20'003, scores), selector.due(20'003, scores))) << work_group;
  }
}

}  // namespace
}  // namespace seriatim::testing
