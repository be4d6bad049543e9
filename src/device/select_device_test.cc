// Selection and rows on the device at every count of the contract's edges up to 262,144 visible tokens.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "device/workspace.hpp"
#include "seriatim/row.hpp"
#include "support/device.hpp"

namespace seriatim::testing {
namespace {

constexpr std::int64_t kVisible[] = {0,    1,    2,    3,    4,    5,      2047,   2048,    2049,   2050,
                                     2051, 2052, 8191, 8192, 8193, 16'384, 65'536, 131'072, 262'144};
constexpr std::int64_t kKeep[] = {1, 64, 512, 2048};

// Those of the selection benchmark, and values that the order must place with care.
enum class Scores : std::uint8_t {
  kNormal,
  kMostlyZero,
  kAscending,
  kDescending,
  kEqual,
  kTopBitsShared,
  kHalfInfinite,
  kFewValues,
  kExtreme
};
constexpr Scores kScores[] = {Scores::kNormal,       Scores::kMostlyZero, Scores::kAscending,
                              Scores::kDescending,   Scores::kEqual,      Scores::kTopBitsShared,
                              Scores::kHalfInfinite, Scores::kFewValues,  Scores::kExtreme};

float draw_one(Scores kind, std::int64_t group, Random& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kExtremes[] = {kInfinity, -kInfinity, kTiny, -kTiny, kLargest, -kLargest, 0.0f, -0.0f};
  switch (kind) {
    case Scores::kNormal:
      return random.normal();
    case Scores::kMostlyZero:
      return random.below(5) == 0 ? std::fabs(random.normal()) : (random.below(2) == 0 ? 0.0f : -0.0f);
    case Scores::kAscending:
      return static_cast<float>(group);
    case Scores::kDescending:
      return static_cast<float>(-group);
    case Scores::kEqual:
      return 1.5f;
    case Scores::kTopBitsShared:
      return std::bit_cast<float>(0x3f800000U | static_cast<std::uint32_t>(random.below(1024)));
    case Scores::kHalfInfinite:
      return random.below(2) == 0 ? -kInfinity : random.normal();
    case Scores::kFewValues:
      return static_cast<float>(random.below(7));
    case Scores::kExtreme:
      return kExtremes[random.below(8)];
  }
  return 0.0f;
}

std::vector<float> draw(Scores kind, std::int64_t groups, Random& random) {
  std::vector<float> scores;
  scores.reserve(static_cast<std::size_t>(groups));
  for (std::int64_t g = 0; g < groups; ++g) scores.push_back(draw_one(kind, g, random));
  return scores;
}

// One geometry on the device, whose score buffer the test fills itself.
class Selector {
 public:
  Selector(const std::shared_ptr<Device>& device, std::int64_t group_tokens, std::int64_t keep)
      : device_(device), work_(make(device, group_tokens, keep)) {}

  // The device's row for these scores, padding included, and its width at the end.
  std::vector<std::int32_t> row(std::int64_t visible, const std::vector<float>& scores) {
    DeviceWorkspace::Impl& work = work_.impl();
    Device::Impl& driver = device_->impl();
    std::vector<std::int32_t> row(static_cast<std::size_t>(work.geometry.row_capacity()) + 1);
    device::LayerArgs layer{};
    layer.anchor = kAnchor;
    EXPECT_TRUE(driver.write(work.visible, 0, &visible, 8).ok());
    EXPECT_TRUE(driver.write(work.scores, 0, scores.data(), static_cast<std::int64_t>(scores.size()) * 4).ok());
    EXPECT_TRUE(work.launch_select(1, false).ok());
    EXPECT_TRUE(work.launch_row(1, layer).ok());
    EXPECT_TRUE(driver.read(work.rows, row.data(), work.geometry.row_capacity() * 4).ok());
    EXPECT_TRUE(driver.read(work.widths, &row.back(), 4).ok());
    EXPECT_TRUE(driver.finish().ok());
    return row;
  }

  std::vector<std::int32_t> due(std::int64_t visible, const std::vector<float>& scores) {
    const Geometry& geometry = work_.impl().geometry;
    std::vector<std::int32_t> row(static_cast<std::size_t>(geometry.row_capacity()) + 1);
    std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(geometry, visible)));
    const auto width = plan_row(geometry, {kAnchor, visible}, scores, NanPolicy::kRefuse, scratch,
                                std::span(row).first(row.size() - 1));
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
    std::vector<Selector> selectors;
    for (const std::int64_t keep : kKeep) selectors.emplace_back(device, r, keep);
    for (const std::int64_t visible : kVisible) {
      for (const Scores kind : kScores) {
        const auto scores = draw(kind, visible / r, random);
        for (std::size_t k = 0; k < selectors.size(); ++k, ++rows) {
          ASSERT_TRUE(same_bytes<std::int32_t>(selectors[k].row(visible, scores), selectors[k].due(visible, scores)))
              << visible << " visible, K " << kKeep[k] << ", r " << r << ", distribution " << static_cast<int>(kind);
        }
      }
    }
  }
  EXPECT_EQ(rows, 4 * 4 * 19 * 9);
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
