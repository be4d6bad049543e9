// Every kernel chooses exactly the groups that the reference chooses: over sizes with all tails, budgets of both paths,
// and inputs made to mislead a sample, fill the collector's room or tie at the cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "select/sample_place.hpp"
#include "select/score_key.hpp"
#include "select/select_kernels.hpp"
#include "support/heap.hpp"
#include "support/rows.hpp"

namespace seriatim {
namespace {

using test::kInfinity;
using test::kNaN;
using test::Random;

using Groups = std::vector<std::int32_t>;
using Scores = std::vector<float>;

constexpr std::int32_t kGuard = 0x5a5a5a5a;
constexpr std::size_t kGuards = 64;

struct Outcome {
  Code code = Code::kOk;
  std::int64_t nan_group = -1;
  Groups chosen;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Selects with exactly the scratch and storage that is asked for, between guards.
Outcome select(Kernels kernels, const Scores& scores, std::int64_t keep, NanPolicy nan = NanPolicy::kRefuse) {
  const auto groups = static_cast<std::int64_t>(scores.size());
  const auto entries = static_cast<std::size_t>(select_scratch_entries(groups));
  const auto kept = static_cast<std::size_t>(std::min(keep, groups));
  Groups scratch(entries + 2 * kGuards, kGuard);
  Groups chosen(kept + 2 * kGuards, kGuard);
  const auto count = select_with(kernels, scores, keep, nan, std::span(scratch).subspan(kGuards, entries),
                                 std::span(chosen).subspan(kGuards, kept));
  const auto guarded = [](const Groups& all, std::size_t begin, std::size_t end) {
    return std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                       [](std::int32_t v) { return v == kGuard; }) &&
           std::all_of(all.begin() + static_cast<std::ptrdiff_t>(end), all.end(),
                       [](std::int32_t v) { return v == kGuard; });
  };
  EXPECT_TRUE(guarded(scratch, kGuards, kGuards + entries)) << "scratch was left";
  const std::size_t written = count.ok() ? static_cast<std::size_t>(*count) : 0;
  EXPECT_LE(written, kept);
  EXPECT_TRUE(guarded(chosen, kGuards, kGuards + written)) << "more than the chosen was written";
  if (!count.ok()) return {count.status().code(), count.status().place().index, {}};
  return {Code::kOk, -1,
          Groups(chosen.begin() + kGuards, chosen.begin() + static_cast<std::ptrdiff_t>(kGuards + written))};
}

float normal(Random& random) {
  double sum = 0.0;
  for (int i = 0; i < 6; ++i) sum += static_cast<double>(random.uniform());
  return static_cast<float>(sum / std::sqrt(2.0));
}

// A kind of input: the score of group g of `groups`.
struct Kind {
  const char* name;
  std::function<float(std::size_t g, std::size_t groups, Random& random)> draw;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"normal", [](std::size_t, std::size_t, Random& r) { return normal(r); }},
      {"80 % zeros of both signs",
       [](std::size_t, std::size_t, Random& r) {
         const float u = r.uniform();
         return u > 0.6f ? u : (u > 0.0f ? 0.0f : -0.0f);
       }},
      {"99 % zeros", [](std::size_t, std::size_t, Random& r) { return r.below(100) == 0 ? normal(r) : 0.0f; }},
      {"rising", [](std::size_t g, std::size_t, Random&) { return static_cast<float>(g) * 0.25f; }},
      {"falling", [](std::size_t g, std::size_t groups, Random&) { return static_cast<float>(groups - g) - 1000.0f; }},
      {"all equal", [](std::size_t, std::size_t, Random&) { return 0.375f; }},
      {"all minus infinity", [](std::size_t, std::size_t, Random&) { return -kInfinity; }},
      {"top bits shared",
       [](std::size_t, std::size_t, Random& r) {
         return std::bit_cast<float>(0x3f800000u + static_cast<std::uint32_t>(r.below(1024)));
       }},
      {"neighbouring negatives",
       [](std::size_t, std::size_t, Random& r) {
         return std::bit_cast<float>(0xbf800000u + static_cast<std::uint32_t>(r.below(3)));
       }},
      {"half -inf", [](std::size_t, std::size_t, Random& r) { return r.uniform() < 0.0f ? -kInfinity : normal(r); }},
      {"both infinities",
       [](std::size_t, std::size_t, Random& r) { return r.uniform() < 0.0f ? kInfinity : -kInfinity; }},
      {"a few +inf", [](std::size_t, std::size_t, Random& r) { return r.below(200) == 0 ? kInfinity : normal(r); }},
      {"any bits but NaN",
       [](std::size_t, std::size_t, Random& r) {
         const float any = std::bit_cast<float>(static_cast<std::uint32_t>(r.next()));
         return std::isnan(any) ? 0.0f : any;
       }},
      {"subnormals", [](std::size_t, std::size_t, Random& r) { return score_of(r.below(41) - 20); }},
      {"high at the end",
       [](std::size_t g, std::size_t groups, Random& r) { return normal(r) + (g + 700 > groups ? 100.0f : 0.0f); }},
      {"high in one stride",
       [](std::size_t g, std::size_t, Random& r) { return normal(r) + (g % 64 == 0 ? 100.0f : 0.0f); }},
      {"slow wave", [](std::size_t g, std::size_t,
                       Random& r) { return std::sin(static_cast<float>(g) * 0.001f) * 10.0f + normal(r) * 0.01f; }},
  };
  return all;
}

Scores scores_of(const Kind& kind, std::size_t groups, std::uint64_t seed) {
  Random random(seed);
  Scores scores(groups);
  for (std::size_t g = 0; g < groups; ++g) scores[g] = kind.draw(g, groups, random);
  return scores;
}

std::vector<Kernels> vector_kernels() {
  auto all = Kernels::available();
  all.pop_back();  // the reference
  return all;
}

// Compares every kernel with the reference and gives how many choices were compared.
std::int64_t agree(const Scores& scores, std::int64_t keep, NanPolicy nan, const std::string& what) {
  std::int64_t compared = 0;
  const Outcome expected = select(Kernels::reference(), scores, keep, nan);
  for (const Kernels kernels : vector_kernels()) {
    const Outcome got = select(kernels, scores, keep, nan);
    if (got == expected) {
      compared += static_cast<std::int64_t>(expected.chosen.size()) + 1;
      continue;
    }
    ADD_FAILURE() << kernels.name() << " differs on " << what << ", " << scores.size() << " groups, keep " << keep
                  << ": " << code_name(got.code) << " " << got.nan_group << " " << got.chosen.size()
                  << " chosen instead of " << code_name(expected.code) << " " << expected.nan_group << " "
                  << expected.chosen.size();
  }
  return compared;
}

TEST(SelectAgreement, TheForcedKernelIsTheOneThatRuns) {
  for (const Kernels kernels : Kernels::available()) {
    std::string name = select_kernels(kernels).name;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    EXPECT_EQ(name, kernels.name());
    for (const Kernels other : Kernels::available()) {
      EXPECT_EQ(select_kernels(other).select == select_kernels(kernels).select, other == kernels);
    }
  }
}

TEST(SelectAgreement, KeysOrderAsScoresDo) {
  const Scores rising{-kInfinity, -3.4e38f, -1.0f, -1e-45f, 0.0f, 1e-45f, 1.0f, 3.4e38f, kInfinity};
  for (std::size_t i = 0; i + 1 < rising.size(); ++i) EXPECT_LT(key_of(rising[i]), key_of(rising[i + 1]));
  for (const float score : rising) EXPECT_EQ(test::bits_of(score_of(key_of(score))), test::bits_of(score));
  EXPECT_EQ(key_of(-0.0f), key_of(0.0f));
}

// Every word over all that is special, and every budget.
TEST(SelectAgreement, EveryWordOfSevenLettersUpToFiveGroups) {
  const Scores alphabet{-kInfinity, -1.0f, -0.0f, 0.0f, 2.0f, kInfinity, kNaN};
  std::int64_t words = 0;
  for (std::size_t length = 0, count = 1; length <= 5; ++length, count *= 7) {
    for (std::size_t code = 0; code < count; ++code) {
      Scores word;
      for (std::size_t g = 0, rest = code; g < length; ++g, rest /= 7) word.push_back(alphabet[rest % 7]);
      for (std::int64_t keep = 0; keep <= static_cast<std::int64_t>(length) + 1; ++keep) {
        for (const NanPolicy nan : {NanPolicy::kRefuse, NanPolicy::kExclude}) agree(word, keep, nan, "a word");
      }
      ++words;
    }
  }
  EXPECT_EQ(words, 1 + 7 + 49 + 343 + 2401 + 16807);
}

TEST(SelectAgreement, EverySizeUpToThreeHundred) {
  std::int64_t compared = 0;
  for (std::size_t groups = 0; groups <= 300; ++groups) {
    for (const Kind& kind : kinds()) {
      const Scores scores = scores_of(kind, groups, groups);
      const auto g = static_cast<std::int64_t>(groups);
      for (const std::int64_t keep : {std::int64_t{0}, std::int64_t{1}, g / 7, g / 2, g - 1, g, g + 5}) {
        if (keep >= 0) compared += agree(scores, keep, NanPolicy::kRefuse, kind.name);
      }
    }
  }
  EXPECT_GE(compared, vector_kernels().empty() ? 0 : 1'000'000);
}

// From where one pass takes over, with a budget on both sides of what it suits, and every tail.
TEST(SelectAgreement, SizesAroundThoseWhereTheWayChanges) {
  Random random(11);
  std::int64_t compared = 0;
  for (const Kind& kind : kinds()) {
    for (int draw = 0; draw < 60; ++draw) {
      const auto groups = static_cast<std::size_t>(draw < 40 ? 1900 + random.below(3100) : 4090 + draw);
      const Scores scores = scores_of(kind, groups, random.next());
      const std::int64_t keep =
          draw % 3 == 0 ? 1 + random.below(1200)
                        : (draw % 3 == 1 ? 1 + random.below(60) : 1 + random.below(static_cast<std::int64_t>(groups)));
      compared += agree(scores, keep, NanPolicy::kRefuse, kind.name);
    }
  }
  EXPECT_GE(compared, vector_kernels().empty() ? 0 : 300'000);
}

TEST(SelectAgreement, LargeInputsWithSmallMiddlingAndLargeBudgets) {
  std::int64_t compared = 0;
  for (const Kind& kind : kinds()) {
    for (const std::size_t groups :
         {std::size_t{8192}, std::size_t{20'011}, std::size_t{65'536}, std::size_t{131'075}}) {
      const Scores scores = scores_of(kind, groups, groups);
      const auto g = static_cast<std::int64_t>(groups);
      for (const std::int64_t keep :
           {std::int64_t{1}, std::int64_t{64}, std::int64_t{512}, std::int64_t{2048}, g / 5, g / 2, g - 3}) {
        compared += agree(scores, keep, NanPolicy::kRefuse, kind.name);
      }
    }
  }
  EXPECT_GE(compared, vector_kernels().empty() ? 0 : 1'000'000);
}

// What lies at the places of the sample.
struct Poison {
  const char* name;
  std::function<float(float score)> change;
};

// Whoever knows the places can make the sample tell that all is high, that nothing is, or that all is alike.
TEST(SelectAgreement, AnAdversaryWhoKnowsTheSample) {
  const Poison poisons[] = {
      {"high", [](float s) { return s + 1e6f; }},   {"low", [](float s) { return s - 1e6f; }},
      {"equal", [](float) { return 1.0f; }},        {"equal to the best", [](float) { return 3.0f; }},
      {"inf", [](float) { return kInfinity; }},     {"-inf", [](float) { return -kInfinity; }},
      {"NaN, excluded", [](float) { return kNaN; }}};
  const Kind rests[] = {
      {"normal", [](std::size_t, std::size_t, Random& r) { return normal(r); }},
      {"rising", [](std::size_t g, std::size_t, Random&) { return static_cast<float>(g); }},
      {"falling", [](std::size_t g, std::size_t, Random&) { return -static_cast<float>(g); }},
      {"four values", [](std::size_t, std::size_t, Random& r) { return static_cast<float>(r.below(4)); }}};
  std::int64_t compared = 0;
  for (const std::size_t groups :
       {std::size_t{2048}, std::size_t{4500}, std::size_t{8191}, std::size_t{30'000}, std::size_t{70'001}}) {
    for (const Kind& rest : rests) {
      for (const Poison& poison : poisons) {
        Scores scores = scores_of(rest, groups, groups);
        for (std::uint32_t i = 0; i < kSampleSize; ++i) {
          float& score = scores[sample_place(i / kSampleRun, static_cast<std::uint32_t>(groups)) + i % kSampleRun];
          score = poison.change(score);
        }
        const NanPolicy nan = std::isnan(poison.change(0.0f)) ? NanPolicy::kExclude : NanPolicy::kRefuse;
        for (const std::int64_t keep : {1, 64, 300, 700, 1700, 2047, 2049, 4000, 20'000}) {
          compared += agree(scores, keep, nan, std::string(rest.name) + " with a sample that is " + poison.name);
        }
      }
    }
  }
  EXPECT_GE(compared, vector_kernels().empty() ? 0 : 1'000'000);
}

TEST(SelectAgreement, SamplePlacesAreSpreadAndInside) {
  for (const std::size_t groups :
       {std::size_t{kSampleSize}, std::size_t{2500}, std::size_t{65'537}, (std::size_t{1} << 31) - 1}) {
    for (std::uint32_t i = 0; i < kSamplePlaces; ++i) {
      const std::size_t place = sample_place(i, static_cast<std::uint32_t>(groups));
      ASSERT_LE(place + kSampleRun, groups);
      ASSERT_TRUE(i == 0 || place >= sample_place(i - 1, static_cast<std::uint32_t>(groups)) + kSampleRun);
    }
  }
}

// Drawn so that a sample of even steps sees nothing of the best, or nothing but them.
TEST(SelectAgreement, RisingRunsThatSwampTheRoom) {
  std::int64_t compared = 0;
  for (const std::size_t period :
       {std::size_t{7}, std::size_t{64}, std::size_t{1000}, std::size_t{16'384}, std::size_t{40'000}}) {
    Scores scores(70'000);
    for (std::size_t g = 0; g < scores.size(); ++g)
      scores[g] = static_cast<float>(g % period) + static_cast<float>(g / period) * 0.5f;
    for (const std::int64_t keep : {1, 512, 4000, 17'000})
      compared += agree(scores, keep, NanPolicy::kRefuse, "rising runs");
  }
  EXPECT_GE(compared, vector_kernels().empty() ? 0 : 5 * 21'000);
}

TEST(SelectAgreement, NanGroupsAreRefusedByTheFirstOrExcluded) {
  Random random(5);
  std::int64_t compared = 0;
  for (const std::size_t groups :
       {std::size_t{1}, std::size_t{17}, std::size_t{63}, std::size_t{2050}, std::size_t{4500}, std::size_t{30'001}}) {
    for (const std::int64_t nans : {std::int64_t{1}, std::int64_t{2}, static_cast<std::int64_t>(groups) / 2,
                                    static_cast<std::int64_t>(groups) * 4, std::int64_t{1} << 20}) {
      Scores scores = scores_of(kinds().front(), groups, groups);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(nans, 1 << 18); ++i) {
        scores[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(groups)))] = std::bit_cast<float>(
            static_cast<std::uint32_t>(0x7f800001u | random.next() << 31 | random.next() % 0x7fffffu));
      }
      for (const std::int64_t keep :
           {std::int64_t{0}, std::int64_t{1}, std::int64_t{64}, std::int64_t{512}, static_cast<std::int64_t>(groups)}) {
        for (const NanPolicy nan : {NanPolicy::kRefuse, NanPolicy::kExclude})
          compared += agree(scores, keep, nan, "NaN among normal");
      }
    }
  }
  EXPECT_GE(compared, vector_kernels().empty() ? 0 : 20'000);
}

TEST(SelectAgreement, ANanIsFoundWhereverItStands) {
  for (const std::size_t groups : {std::size_t{70}, std::size_t{4099}}) {
    for (std::size_t at = 0; at < groups; at += groups > 100 ? 37 : 1) {
      Scores scores = scores_of(kinds().front(), groups, at);
      scores[at] = -kNaN;
      for (const Kernels kernels : Kernels::available()) {
        const Outcome got = select(kernels, scores, 20);
        EXPECT_EQ(got.code, Code::kNotANumber) << kernels.name();
        EXPECT_EQ(got.nan_group, static_cast<std::int64_t>(at)) << kernels.name();
      }
    }
  }
}

TEST(SelectAgreement, NoKernelAsksForMemory) {
  std::int64_t counted = 0;
  for (const std::size_t groups : {std::size_t{60}, std::size_t{3000}, std::size_t{66'000}}) {
    for (const Kind& kind : kinds()) {
      const Scores scores = scores_of(kind, groups, 1);
      Groups scratch(groups);
      Groups chosen(groups);
      for (const Kernels kernels : vector_kernels()) {
        for (const std::int64_t keep : {std::int64_t{50}, std::int64_t{512}, static_cast<std::int64_t>(groups) / 2}) {
          const auto use = testing::heap_use_of(
              [&] { (void)select_with(kernels, scores, keep, NanPolicy::kRefuse, scratch, chosen); });
          EXPECT_EQ(use.calls, 0) << kernels.name() << " " << kind.name;
          ++counted;
        }
      }
    }
  }
  EXPECT_GE(counted, vector_kernels().empty() ? 0 : 100);
  Groups grows;
  EXPECT_GE(testing::heap_use_of([&] { grows.resize(1000); }).calls, 1) << "the counter counts";
}

// The kernels read scores from any address that floats may have.
TEST(SelectAgreement, UnalignedScoresGiveTheSame) {
  const Scores scores = scores_of(kinds().front(), 5000, 3);
  const Outcome expected = select(Kernels::reference(), scores, 100);
  ASSERT_EQ(expected.chosen.size(), 100u);
  for (std::size_t shift = 0; shift < 16; ++shift) {
    Scores shifted(scores.size() + 16);
    std::copy(scores.begin(), scores.end(), shifted.begin() + static_cast<std::ptrdiff_t>(shift));
    Groups scratch(5000);
    Groups chosen(100);
    for (const Kernels kernels : Kernels::available()) {
      ASSERT_TRUE(
          select_with(kernels, std::span(shifted).subspan(shift, 5000), 100, NanPolicy::kRefuse, scratch, chosen).ok());
      EXPECT_EQ(chosen, expected.chosen) << kernels.name() << " " << shift;
    }
  }
}

}  // namespace
}  // namespace seriatim
