#include "screen/pick.hpp"

#include <algorithm>
#include <limits>

#include "select/select_kernels.hpp"

namespace seriatim {
namespace {

constexpr float kSure = std::numeric_limits<float>::infinity();  // above every canonical score

class Picker {
 public:
  Picker(const PickTask& task, std::span<std::int32_t> chosen, std::span<float> chosen_scores)
      : task_(task), chosen_(chosen), chosen_scores_(chosen_scores) {}

  Picked run() {
    // The best by approximate score. Their least canonical score is one that enough groups reach.
    select(task_.reach.scores, chosen_);
    float cut = kSure;
    for (const std::int32_t g : chosen_) cut = std::min(cut, score(g));
    sure_above_ = cut + task_.widest;
    std::int64_t count = 0;
    std::int32_t* const unsure = task_.scratch->unsure.data();
    for (const std::int32_t g : chosen_) {
      if (!is_sure(g)) unsure[count++] = g;
    }
    if (count > task_.most_rescored) return {};
    const std::span<const std::int32_t> first(unsure, static_cast<std::size_t>(count));
    float* const first_exact = task_.scratch->unsure_exact.data();
    rescore(task_.rescore, first, first_exact);
    const float least = *std::min_element(first_exact, first_exact + count);

    ScreenReach reach = task_.reach;
    reach.threshold = least;
    std::span<std::int32_t> listed(task_.scratch->listed.data(),
                                   static_cast<std::size_t>(task_.scratch->listed.size()));
    const std::int64_t reached = task_.screen->reach(reach, listed);
    if (reached > static_cast<std::int64_t>(listed.size())) return {false, count};
    listed = listed.first(static_cast<std::size_t>(reached));
    return fill(listed, first, first_exact);
  }

 private:
  float score(std::int32_t g) const { return task_.reach.scores[static_cast<std::size_t>(g)]; }
  // Fewer than `keep` groups can have a canonical score as high as this one's.
  bool is_sure(std::int32_t g) const {
    if (!chosen_scores_.empty()) return false;
    return score(g) - task_.reach.bound.of(task_.reach.norms[g], task_.reach.errors[g]) > sure_above_;
  }

  void select(std::span<const float> scores, std::span<std::int32_t> chosen) const {
    // No error is left: no score is NaN, and there is room.
    static_cast<void>(
        *select_with(task_.kernels, scores, task_.keep, NanPolicy::kExclude, task_.select_scratch, chosen));
  }

  // `listed` holds every group of the set, and `known` those of it whose scores are there already; both ascend.
  Picked fill(std::span<std::int32_t> listed, std::span<const std::int32_t> known, const float* known_exact) {
    float* const exact = task_.scratch->exact.data();
    // What is not known is moved to the end of the select scratch, rescored, and put in its place.
    const std::span<std::int32_t> rest = task_.select_scratch;
    std::size_t at = 0, lacking = 0;
    for (std::size_t i = 0; i < listed.size(); ++i) {
      while (at < known.size() && known[at] < listed[i]) ++at;
      if (at < known.size() && known[at] == listed[i]) {
        exact[i] = known_exact[at];
      } else if (is_sure(listed[i])) {
        exact[i] = kSure;
      } else {
        exact[i] = 0.0f;
        rest[lacking++] = static_cast<std::int32_t>(i);
      }
    }
    const auto rescored = static_cast<std::int64_t>(known.size() + lacking);
    if (rescored > task_.most_rescored) return {false, static_cast<std::int64_t>(known.size())};
    score_rest(listed, rest.first(lacking), exact);
    select({exact, listed.size()}, chosen_);
    for (std::size_t i = 0; i < chosen_scores_.size(); ++i) chosen_scores_[i] = exact[chosen_[i]];
    for (std::int32_t& g : chosen_) g = listed[static_cast<std::size_t>(g)];
    return {true, rescored};
  }

  // In portions that fit the room for the unsure, whose scores have been copied.
  void score_rest(std::span<const std::int32_t> listed, std::span<const std::int32_t> places, float* exact) {
    std::int32_t* const groups = task_.scratch->unsure.data();
    float* const scores = task_.scratch->unsure_exact.data();
    const auto portion = static_cast<std::size_t>(task_.scratch->unsure.size());
    for (std::size_t first = 0; first < places.size(); first += portion) {
      const std::size_t count = std::min(portion, places.size() - first);
      for (std::size_t i = 0; i < count; ++i) groups[i] = listed[static_cast<std::size_t>(places[first + i])];
      rescore(task_.rescore, {groups, count}, scores);
      for (std::size_t i = 0; i < count; ++i) exact[places[first + i]] = scores[i];
    }
  }

  const PickTask& task_;
  const std::span<std::int32_t> chosen_;
  const std::span<float> chosen_scores_;
  float sure_above_ = 0.0f;
};

}  // namespace

Picked pick(const PickTask& task, std::span<std::int32_t> chosen, std::span<float> chosen_scores) {
  return Picker(task, chosen, chosen_scores).run();
}

}  // namespace seriatim
