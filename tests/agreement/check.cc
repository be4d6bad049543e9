#include "agreement/check.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>

#include "agreement/device_side.hpp"
#include "agreement/flips.hpp"
#include "base/format.hpp"
#include "replay/digest.hpp"

namespace seriatim::agreement {
namespace {

static_assert(std::endian::native == std::endian::little, "the digests are of little-endian bytes");

constexpr std::array kThreads{1, 2, 3, 8};
constexpr std::int64_t kLeanFlipTokens = 500;  // a case is computed six times more and oftener for its flips

Digest digest_of(const Answer& answer, Part part) { return {answer.values_of(part), digest({answer.of(part)})}; }

Digest digest_of_inputs(const Problem& problem) { return {problem.keys.elements(), inputs_digest(problem)}; }

std::string text_of(const Status& status) { return formatted("{}: {}", code_name(status.code()), status.message()); }

// The last way, a device's, in the environments that a device on a CPU could take up from its caller.
void add_foreign_device_ways(std::vector<Way>& ways) {
  const Way last = ways.back();
  for (const testing::Foreign foreign : {testing::Foreign::kFlush, testing::Foreign::kUp, testing::Foreign::kTraps}) {
    ways.push_back(last);
    ways.back().foreign = foreign;
  }
}

}  // namespace

Checker::Checker(const DigestFile& file, Extent extent) : file_(file), extent_(extent), kernels_(Kernels::available()) {
  for (std::size_t i = 0; i < kThreads.size(); ++i) executors_[i] = make_executor(kThreads[i]);
}

std::vector<Way> Checker::ways() const {
  std::vector<Way> ways;
  for (const Kernels& kernels : kernels_) {
    const Way plain{.kernels = kernels, .executor = executors_[0].get()};
    ways.push_back(plain);
    const bool all = extent_ == Extent::kFull ||
                     (extent_ == Extent::kQuick && (kernels == kernels_.front() || kernels.is_reference()));
    if (extent_ == Extent::kLean && kernels == kernels_.front()) {
      ways.push_back(plain);
      ways.back().chunk = 1;
    }
    if (extent_ != Extent::kLean || kernels == kernels_.front()) {
      ways.push_back(plain);
      ways.back().screening = Screening::kOn;
    }
    if (!all) continue;
    ways.push_back(plain);
    ways.back().screening = Screening::kOff;
    ways.push_back({.kernels = kernels, .executor = executors_[1].get(), .threads = kThreads[1]});
    ways.back().batch = Batch::kAsks;
    ways.back().screening = Screening::kOn;
    for (std::size_t i = 1; i < kThreads.size(); ++i) {
      ways.push_back({.kernels = kernels, .executor = executors_[i].get(), .threads = kThreads[i]});
    }
    for (const Batch batch : {Batch::kAlone, Batch::kNeighbours, Batch::kAsks}) {
      ways.push_back(plain);
      ways.back().batch = batch;
    }
    for (const Memory memory : {Memory::kArray, Memory::kPages}) {
      ways.push_back(plain);
      ways.back().memory = memory;
    }
    // What an engine does: many asks over pages of its own, shared out among threads, as tokens come.
    ways.push_back({.kernels = kernels, .executor = executors_[1].get(), .threads = kThreads[1]});
    ways.back().batch = Batch::kAsks;
    ways.back().memory = Memory::kPages;
    ways.back().chunk = 5;
    for (const std::int64_t chunk : {1, 2, 3, 5, 64}) {
      ways.push_back(plain);
      ways.back().chunk = chunk;
    }
  }
  // One context over ranks, in chunks and at once, finished in both ways.
  for (const int ranks : {1, 2, 3, 5, 8}) {
    if (extent_ == Extent::kLean && ranks != 3) continue;
    ways.push_back({.kernels = kernels_.front(), .executor = executors_[0].get()});
    ways.back().ranks = ranks;
    ways.back().chunk = ranks == 1 || ranks == 3 ? 0 : 64;
  }
  add_foreign_ways(ways);
  add_device_ways(ways);
  return ways;
}

// What other software sets in the process: on the calling thread alone, and around the making of a pool.
void Checker::add_foreign_ways(std::vector<Way>& ways) const {
  constexpr std::array kPools{Pool::kBefore, Pool::kDuring, Pool::kAfter};
  std::size_t next_pool = 0;
  for (const testing::Foreign foreign : testing::kEveryForeign) {
    ways.push_back({.kernels = kernels_.front(), .executor = executors_[0].get()});
    ways.back().foreign = foreign;
    if (extent_ == Extent::kLean) continue;
    for (const Pool pool : kPools) {
      if (extent_ == Extent::kQuick && pool != kPools[next_pool % kPools.size()]) continue;
      ways.push_back({.kernels = kernels_.front(), .executor = executors_[1].get(), .threads = kThreads[1]});
      ways.back().foreign = foreign;
      ways.back().pool = pool;
    }
    ++next_pool;
  }
}

// A device: everything at once; one by one beside its neighbours, by other work-groups; and staged in chunks.
void Checker::add_device_ways(std::vector<Way>& ways) const {
  if (extent_ == Extent::kLean) return;  // an emulator has no device
  const Way plain{.kernels = kernels_.front(), .executor = executors_[0].get()};
  for (const std::string& backend : device_backends()) {
    if (backend == "emulated") {
      ways.push_back(plain);
      ways.back().device = {backend, 4};
      add_foreign_device_ways(ways);
      continue;
    }
    for (const bool usual : {true, false}) {
      ways.push_back(plain);
      ways.back().device = {backend, usual ? 128 : 32};
      ways.back().batch = usual ? Batch::kTogether : Batch::kNeighbours;
      ways.push_back(plain);
      ways.back().device = {backend, usual ? 128 : 32};
      ways.back().chunk = usual ? 64 : 5;
    }
    add_foreign_device_ways(ways);
  }
}

bool Checker::report(const std::string& what) {
  std::fprintf(stderr, "  %s\n", what.c_str());
  return false;
}

// Where an answer leaves this build's own reference.
std::string Checker::where(const Problem& problem, const Answer& got, Part part) const {
  const auto reference = answer(problem, {.kernels = Kernels::reference(), .executor = &serial_executor()});
  if (!reference.ok()) return text_of(reference.status());
  const auto& want = reference->of(part);
  const auto& is = got.of(part);
  if (is.size() != want.size()) return "of another length than this build's reference gives";
  if (is == want) return "just what this build's reference gives";
  const auto at = std::mismatch(is.begin(), is.end(), want.begin()).first - is.begin();
  return formatted("this build's reference gives another value {}",
                   at * got.values_of(part) / static_cast<std::int64_t>(is.size()));
}

bool Checker::check_inputs(const Case& one, const Problem& problem) {
  const Digest* due = file_.find(one.name, "inputs");
  if (due == nullptr) return report("the file has no digest of its inputs");
  if (digest_of_inputs(problem) != *due) return report("the inputs are others: nothing can be said of the results");
  ++digests_;
  return true;
}

bool Checker::check_answer(const Case& one, const Problem& problem, const Way& way, const Answer& got) {
  bool same = true;
  for (const Part part : kParts) {
    const Digest* due = file_.find(one.name, part_name(part));
    const Digest is = digest_of(got, part);
    if (due == nullptr) {
      same = report(formatted("{}: the file has no digest of it", part_name(part)));
    } else if (is != *due) {
      same = report(formatted("{} by {}: {} values with digest {}, due are {} with {}; {}", part_name(part), way.name(),
                              is.values, is.hex, due->values, due->hex, where(problem, got, part)));
    } else {
      ++digests_;
      values_ += is.values;
    }
  }
  ++answers_;
  return same;
}

bool Checker::check_flips(const Case& one, const Problem& problem, const Answer& right) {
  if (!flip_shows_in_inputs(problem)) return report("a flipped bit does not show in the inputs' digest");
  ++flips_;
  const Way way{.kernels = kernels_.front(), .executor = executors_[0].get()};
  for (const Part part : kParts) {
    const auto shown = flip_shows(problem, way, right, part);
    if (!shown.ok()) return report(formatted("with a flipped bit: {}", text_of(shown.status())));
    if (shown->empty()) return report(formatted("{} of {}: no flipped bit shows", part_name(part), one.name));
    ++flips_;
  }
  return true;
}

bool Checker::check_case(const Case& one) {
  const auto problem = problem_of(one);
  if (!problem.ok()) return report(text_of(problem.status()));
  if (!check_inputs(one, *problem)) return false;
  bool same = true;
  Answer first;
  for (const Way& way : ways()) {
    auto got = answer(*problem, way);
    if (!got.ok()) {
      same = report(formatted("{}: {}", way.name(), text_of(got.status())));
      continue;
    }
    same = check_answer(one, *problem, way, *got) && same;
    if (first.sparse_rows == 0) first = *std::move(got);
  }
  if (first.sparse_rows == 0) return report("no row leaves anything out");
  if (extent_ == Extent::kLean && problem->tokens() > kLeanFlipTokens) return same;
  return check_flips(one, *problem, first) && same;
}

void Checker::check(const Case& one) {
  if (extent_ != Extent::kFull && !one.quick) {
    ++left_out_;
    return;
  }
  const std::int64_t answers = answers_;
  const std::int64_t values = values_;
  const bool same = check_case(one);
  ++(same ? passed_ : failed_);
  std::printf("%-32s %3lld ways %12lld values %s\n", one.name.c_str(), static_cast<long long>(answers_ - answers),
              static_cast<long long>(values_ - values), same ? "agree" : "DIFFER");
  std::fflush(stdout);
}

Status Checker::finish(const std::string& path) const {
  std::string names;
  for (const Kernels& kernels : kernels_) names += formatted("{}{}", names.empty() ? "" : ",", kernels.name());
  const std::string device = extent_ == Extent::kLean || device_backends().empty() ? "none" : device_products();
  const std::string closing = formatted(
      "kernels {}\ndevice {}\ncases {}\nleft_out {}\nanswers {}\ndigests {}\nvalues {}\nflips {}\nfailed {}\n", names,
      device, passed_ + failed_, left_out_, answers_, digests_, values_, flips_, failed_);
  std::printf(
      "kernels: %s\ndevice: %s\n%lld cases left out by the extent asked for\n%lld answers: %lld digests of %lld values "
      "compared, %lld flipped bits seen\n%lld passed, %lld failed\n",
      names.c_str(), device.c_str(), static_cast<long long>(left_out_), static_cast<long long>(answers_),
      static_cast<long long>(digests_), static_cast<long long>(values_), static_cast<long long>(flips_),
      static_cast<long long>(passed_), static_cast<long long>(failed_));
  if (path.empty()) return {};
  std::ofstream out(path);
  out << closing;
  out.close();
  if (!out) return Status::error(Code::kIo, "summary", formatted("summary: cannot write {}", path));
  return {};
}

Status write_case(const Case& one, DigestFile& file) {
  const auto problem = problem_of(one);
  if (!problem.ok()) return problem.status();
  const auto right = answer(*problem, {.kernels = Kernels::reference(), .executor = &serial_executor()});
  if (!right.ok()) return right.status();
  if (right->sparse_rows == 0) return Status::error(Code::kCorrupt, "case", "case: no row leaves anything out");
  file.put(one.name, "inputs", digest_of_inputs(*problem));
  for (const Part part : kParts) {
    if (right->values_of(part) == 0)
      return Status::error(Code::kCorrupt, part_name(part), formatted("{}: nothing", part_name(part)));
    file.put(one.name, part_name(part), digest_of(*right, part));
  }
  return {};
}

}  // namespace seriatim::agreement
