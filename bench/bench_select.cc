
#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "bench/bench.hpp"
#include "bench/inputs.hpp"
#include "bench/peers.hpp"
#include "select/select_kernels.hpp"

namespace seriatim::bench {
namespace {

// One selection, ready to run again and again.
class Selection {
 public:
  Selection(Kernels kernels, std::vector<float> scores, std::int64_t keep)
      : kernels_(kernels),
        scores_(std::move(scores)),
        keep_(keep),
        scratch_(static_cast<std::size_t>(select_scratch_entries(count()))),
        chosen_(static_cast<std::size_t>(std::min(keep, count()))) {
    require(run() == static_cast<std::int64_t>(chosen_.size()), "select");
    auto expected = chosen_;
    require(select_with(Kernels::reference(), scores_, keep_, NanPolicy::kRefuse, scratch_, expected).ok(),
            "select by the reference");
    require(expected == chosen_, "selection by the reference");
  }

  std::int64_t count() const { return static_cast<std::int64_t>(scores_.size()); }
  const std::vector<std::int32_t>& chosen() const { return chosen_; }

  std::int64_t run() {
    const auto chosen = select_with(kernels_, scores_, keep_, NanPolicy::kRefuse, scratch_, chosen_);
    consume(chosen_.data());
    return chosen.ok() ? *chosen : -1;
  }

  Contestant ours() {
    return {"ours", [this] { run(); }, {}};
  }
  Contestant scan() const {
    return {"max scan",
            [this] {
              const float best = max_scan(kernels_, scores_.data(), count());
              consume(&best);
            },
            {}};
  }
  Contestant peer(const SelectPeer& peer) {
    std::vector<std::int32_t> expected;
    peer.select(scores_, keep_, peer_scratch_, expected);
    require(expected == chosen_, peer.name);
    return {peer.name,
            [this, &peer] {
              peer.select(scores_, keep_, peer_scratch_, peer_chosen_);
              consume(peer_chosen_.data());
            },
            {}};
  }

 private:
  Kernels kernels_;
  std::vector<float> scores_;
  std::int64_t keep_;
  std::vector<std::int32_t> scratch_, chosen_, peer_scratch_, peer_chosen_;
};

// The limit is a scan of the same array in the same rounds.
Measure against_scan(Bench& bench, std::string name, Selection& selection, const std::vector<SelectPeer>& peers) {
  std::vector<Contestant> contestants{selection.ours(), selection.scan()};
  for (const SelectPeer& peer : peers) contestants.push_back(selection.peer(peer));
  const auto timings = interleave(contestants, bench.effort());
  Measure m;
  m.name = std::move(name);
  m.ours = timings[0];
  m.limit_ns = timings[1].median_ns;
  m.limit = "one max-scan of the same array";
  for (std::size_t i = 2; i < timings.size(); ++i) m.peers.push_back({contestants[i].name, timings[i]});
  return m;
}

void normal_case(Bench& bench) {
  Random random(11);
  Selection selection(bench.kernels(), normal_scores(random, 65536), 512);
  Measure m = against_scan(bench, "select 512 of 65,536, normal", selection, select_peers());
  double best = m.times_slower(0);
  for (std::size_t i = 1; i < m.peers.size(); ++i) best = std::min(best, m.times_slower(i));
  m.target = "<= 3x scan, >= 6x best peer";
  m.met = m.to_limit() <= 3.0 && best >= 6.0;
  bench.note(std::move(m));
}

// Every other distribution takes turns with normal scores, which are its limit.
void other_distributions(Bench& bench) {
  Random random(12);
  auto distributions = score_distributions(random, 65536);
  Selection normal(bench.kernels(), distributions[0].scores, 512);
  for (std::size_t i = 1; i < distributions.size(); ++i) {
    Selection other(bench.kernels(), std::move(distributions[i].scores), 512);
    const auto timings = interleave({other.ours(), normal.ours()}, bench.effort());
    Measure m;
    m.name = formatted("select 512 of 65,536, {}", distributions[i].name);
    m.ours = timings[0];
    m.limit_ns = timings[1].median_ns;
    m.limit = "the same selection on normal scores";
    m.target = "<= 2x normal";
    m.met = m.to_limit() <= 2.0;
    bench.note(std::move(m));
  }
}

void sizes(Bench& bench) {
  Random random(13);
  for (const std::int64_t groups : {2048, 8192, 131072, 262144}) {
    for (const std::int64_t keep : {64, 512, 2048}) {
      Selection selection(bench.kernels(), normal_scores(random, groups), keep);
      Measure m = against_scan(bench, formatted("select {} of {}", keep, groups), selection, {});
      m.target = groups == 131072 && keep == 2048 ? "<= 3x scan" : "stated";
      if (groups == 131072 && keep == 2048) m.met = m.to_limit() <= 3.0;
      bench.note(std::move(m));
    }
  }
}

}  // namespace

void bench_select(Bench& bench) {
  if (!bench.wants("select")) return;
  normal_case(bench);
  other_distributions(bench);
  sizes(bench);
}

}  // namespace seriatim::bench
