#include "support/cache_machine.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/format.hpp"
#include "base/half.hpp"
#include "cache_file/save.hpp"

namespace seriatim::cache_testing {
namespace {

constexpr std::size_t kMostSequences = 6;
constexpr std::size_t kMostSnapshots = 4;

GeometryOptions geometry_options(const Program& program) {
  constexpr std::int64_t kGroups[] = {4, 1, 3, 7, 2};
  GeometryOptions options = small_options(kGroups[program.geometry % 5]);
  const int bits = program.geometry / 5;
  if ((bits & 1) != 0) options.rope_axes = {2, 1};
  if ((bits & 2) != 0) options.kv_dtype = options.index_dtype = DType::kBf16;
  if ((bits & 4) != 0) options.values_alias_keys = true;
  if ((bits & 8) != 0 && options.group_tokens == 1) options.pooling = Pooling::kNone;
  return options;
}

CacheOptions options_of(const Program& program, const Geometry& geometry) {
  const std::int64_t page_tokens = 16 * geometry.group_tokens();
  CacheOptions options = cache_options(1 + program.layers % 3, (1 + program.capacity % 12) * page_tokens, page_tokens);
  options.index_only = program.geometry / 5 / 16 == 1;
  options.layers.back().indexed = program.geometry / 5 < 32;
  return options;
}

// A saved file is as good for these tests without the wait for the disk.
class UnsyncedCalls final : public file::FileCalls {
 public:
  int fsync(int) override { return 0; }
};

}  // namespace

Machine::Machine(const Program& program, std::string folder)
    : geometry_(admit(geometry_options(program))),
      options_(options_of(program, geometry_)),
      page_tokens_(options_.page_tokens),
      folder_(std::move(folder)),
      cache_(make_cache(geometry_, options_)) {
  code_.push_back(formatted("cache(r = {}, layers = {}, page = {}, capacity = {} pages, geometry = {});",
                            geometry_.group_tokens(), options_.layers.size(), page_tokens_,
                            options_.capacity_tokens / page_tokens_, program.geometry));
}

std::optional<Failure> Machine::run(const Program& program) {
  for (const Operation& operation : program.operations) {
    step(operation);
    if (what_.empty()) compare_all();
    if (!what_.empty()) return Failure{what_, code_};
  }
  finish();
  return what_.empty() ? std::nullopt : std::optional(Failure{what_, code_});
}

void Machine::fail(std::string what) {
  if (what_.empty()) what_ = std::move(what);
}

void Machine::compare_all() {
  for (const ModelSequence& sequence : sequences_) {
    if (image(*cache_, sequence.id) != sequence.image)
      fail(formatted("s{} is not what its definition says", sequence.id));
    compare_bounds(sequence);
  }
  for (std::size_t i = 0; i < snapshots_.size(); ++i) {
    if (image(snapshots_[i].snapshot) != snapshots_[i].image) fail(formatted("snapshot {} has changed", i));
  }
}

void Machine::compare_bounds(const ModelSequence& sequence) {
  const Snapshot snapshot = *cache_->snapshot(sequence.id);
  for (std::int64_t l = 0; l < snapshot.layers(); ++l) {
    const LayerView view = snapshot.layer(l);
    if (!(largest_pooled(view) <= view.pooled.max_abs))
      fail(formatted("s{}: a pooled key is larger than max_abs", sequence.id));
    const bool known = std::isfinite(view.pooled.max_abs);
    if (!known && !mapped_unseen_) fail(formatted("s{}: max_abs is not known", sequence.id));
  }
}

void Machine::finish() {
  snapshots_.clear();
  for (const ModelSequence& sequence : sequences_) {
    if (!cache_->remove(sequence.id).ok()) fail("remove at the end");
  }
  cache_->trim();
  if (cache_->bytes().pages() != 0 || cache_->bytes().mapped != 0) fail("an empty cache holds pages");
}

void Machine::redefine(ModelSequence& sequence) {
  sequence.image = plain_image(geometry_, options_, sequence.anchor, sequence.tokens);
}

ModelSequence* Machine::pick(std::uint8_t operand) {
  return sequences_.empty() ? nullptr : &sequences_[operand % sequences_.size()];
}

std::vector<TokenId> Machine::fresh_tokens(std::int64_t count) {
  const auto tokens = ids(next_token_, count);
  next_token_ += static_cast<TokenId>(count);
  return tokens;
}

bool Machine::succeeded(const Status& status, const char* call, std::int64_t token_pages, std::int64_t pooled_pages) {
  if (status.ok()) return true;
  code_.back() += formatted("  // {}", status.message());
  const std::int64_t capacity = options_.capacity_tokens / page_tokens_;
  const CacheBytes bytes = cache_->bytes();
  const auto of_tokens = [](const CacheBytes& b) { return b.keys_values + b.raw_index_keys + b.coordinates; };
  // Pages without bytes, of an index store whose keys arrive finished, may be lacking too.
  const std::int64_t used = of_tokens(full_page_) == 0 ? capacity : of_tokens(bytes) / of_tokens(full_page_);
  const std::int64_t pooled = full_page_.pooled_keys == 0 ? 0 : bytes.pooled_keys / full_page_.pooled_keys;
  const bool plausible = used + token_pages > capacity || pooled + pooled_pages > 2 * capacity;
  if (status.code() != Code::kCapacity || !plausible) fail(formatted("{}: {}", call, status.message()));
  return false;
}

std::int64_t Machine::pages_of(std::int64_t tokens) const { return tokens / page_tokens_ + 2; }

void Machine::step(const Operation& o) {
  using Method = void (Machine::*)(const Operation&);
  // Appends are what the others live on.
  constexpr Method kMethods[] = {
      &Machine::append,          &Machine::append,        &Machine::append,        &Machine::engine_step,
      &Machine::engine_step,     &Machine::add,           &Machine::fork,          &Machine::truncate,
      &Machine::truncate,        &Machine::evict,         &Machine::copy,          &Machine::remove,
      &Machine::reset,           &Machine::take_snapshot, &Machine::drop_snapshot, &Machine::hole,
      &Machine::save_and_restore};
  code_.emplace_back();
  (this->*kMethods[o.kind % std::size(kMethods)])(o);
  if (code_.back().empty()) code_.pop_back();  // it had nothing to work on
}

void Machine::add(const Operation& o) {
  if (sequences_.size() == kMostSequences) return;
  ModelSequence sequence;
  sequence.anchor = o.a % 9;
  const auto id = cache_->add(sequence.anchor);
  if (!id.ok()) return fail("add");
  code_.back() = formatted("s{} = add({});", *id, sequence.anchor);
  sequence.id = *id;
  redefine(sequence);
  sequences_.push_back(std::move(sequence));
}

void Machine::remove(const Operation& o) {
  ModelSequence* sequence = pick(o.a);
  if (sequence == nullptr) return;
  code_.back() = formatted("remove(s{});", sequence->id);
  if (!cache_->remove(sequence->id).ok()) fail("remove");
  sequences_.erase(sequences_.begin() + (sequence - sequences_.data()));
}

void Machine::reset(const Operation& o) {
  ModelSequence* sequence = pick(o.a);
  if (sequence == nullptr) return;
  code_.back() = formatted("reset(s{}, {});", sequence->id, o.b);
  if (!cache_->reset(sequence->id, o.b).ok()) fail("reset");
  sequence->anchor = o.b;
  sequence->tokens.clear();
  redefine(*sequence);
}

void Machine::truncate(const Operation& o) {
  ModelSequence* sequence = pick(o.a);
  if (sequence == nullptr) return;
  // Near the end as often as anywhere.
  const std::int64_t most = sequence->count();
  const std::int64_t kept =
      o.c % 2 == 0 ? most - o.b % std::min<std::int64_t>(most + 1, 10) : (o.b * 256 + o.c) % (most + 1);
  code_.back() = formatted("truncate(s{}, {});  // of {}", sequence->id, kept, most);
  if (!cache_->truncate(sequence->id, kept).ok()) fail("truncate");
  sequence->tokens.resize(static_cast<std::size_t>(kept));
  redefine(*sequence);
}

void Machine::fork(const Operation& o) {
  const ModelSequence* sequence = pick(o.a);
  if (sequence == nullptr || sequences_.size() == kMostSequences) return;
  const auto id = cache_->fork(sequence->id);
  if (!id.ok()) return fail("fork");
  code_.back() = formatted("s{} = fork(s{});", *id, sequence->id);
  ModelSequence copy = *sequence;
  copy.id = *id;
  sequences_.push_back(std::move(copy));
}

void Machine::evict(const Operation& o) {
  ModelSequence* sequence = pick(o.a);
  if (sequence == nullptr) return;
  const std::int64_t evicted = (o.c % 2 == 0 ? o.b % 10 : o.b * 3) % (sequence->count() + 1);
  code_.back() = formatted("evict_prefix(s{}, {});", sequence->id, evicted);
  const Status status = cache_->evict_prefix(sequence->id, evicted);
  if (!succeeded(status, "evict_prefix", 0, pages_of(sequence->count()))) return;
  sequence->anchor += evicted;
  sequence->tokens.erase(sequence->tokens.begin(), sequence->tokens.begin() + evicted);
  redefine(*sequence);
}

void Machine::copy(const Operation& o) {
  const ModelSequence* from = pick(o.a);
  ModelSequence* to = pick(o.b);
  if (from == nullptr || from == to) return;
  if (to->count() == 0 && to->anchor != from->anchor + o.c % (from->count() + 1)) {  // else it would seldom fit
    to->anchor = from->anchor + o.c % (from->count() + 1);
    if (!cache_->reset(to->id, to->anchor).ok()) fail("reset before copy");
    redefine(*to);
  }
  const std::int64_t first = to->frontier();
  const bool held = first >= from->anchor && first <= from->frontier();
  const std::int64_t count = held ? o.c % (from->frontier() - first + 1) : 1;
  code_.back() = formatted("copy(s{}, {}, {}, s{});", from->id, first, count, to->id);
  const Status status = cache_->copy(from->id, first, count, to->id);
  if (!held) {
    if (status.code() != Code::kInvalidArgument) fail("copy of a range that is not there");
    return;
  }
  if (!succeeded(status, "copy", pages_of(count), pages_of(count))) return;
  const auto begin = from->tokens.begin() + (first - from->anchor);
  to->tokens.insert(to->tokens.end(), begin, begin + count);
  redefine(*to);
}

bool Machine::stage(Transaction& transaction, const ModelSequence& sequence, const std::vector<TokenId>& tokens,
                    bool spoiled, Status& status) {
  for (std::size_t l = 0; l < options_.layers.size(); ++l) {
    const auto layer = static_cast<std::int64_t>(l);
    // Layers take the step in different pieces.
    const std::int64_t count = static_cast<std::int64_t>(tokens.size());
    const std::int64_t cut = count * (layer + 1) / (static_cast<std::int64_t>(options_.layers.size()) + 1);
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, count}}) {
      const std::vector<TokenId> piece(tokens.begin() + begin, tokens.begin() + end);
      Batch batch = make_batch(geometry_, layer, sequence.frontier() + begin, piece, options_.layers[l].indexed,
                               options_.index_only);
      const bool last = l + 1 == options_.layers.size() && end == count && !piece.empty();
      if (spoiled && last) {
        auto& spoilt = options_.index_only ? batch.index_keys : batch.keys;
        const DType dtype = options_.index_only ? geometry_.index_dtype() : geometry_.kv_dtype();
        store_element(spoilt.data() + spoilt.size() - static_cast<std::size_t>(dtype_bytes(dtype)), dtype,
                      std::numeric_limits<float>::quiet_NaN());
      }
      status = transaction.append(sequence.id, layer, batch.view);
      if (spoiled && last && status.ok()) fail("a NaN was taken");
      if (!status.ok()) return false;
    }
  }
  return true;
}

void Machine::append(const Operation& o) {
  ModelSequence* sequence = pick(o.a);
  if (sequence == nullptr) return add(o);
  const std::int64_t count = o.c % 4 == 0 ? o.b % (2 * page_tokens_) : o.b % 11;
  code_.back() = formatted("append(s{}, {});", sequence->id, count);
  const auto tokens = fresh_tokens(count);
  auto transaction = cache_->begin();
  if (!transaction.ok()) return fail("begin");
  Status status;
  if (!stage(*transaction, *sequence, tokens, false, status)) {
    succeeded(status, "append", pages_of(count), pages_of(count));
    return;
  }
  if (!transaction->commit().ok()) return fail("commit");
  sequence->tokens.insert(sequence->tokens.end(), tokens.begin(), tokens.end());
  redefine(*sequence);
}

// Two sequences in one transaction that ends in one of five ways.
void Machine::engine_step(const Operation& o) {
  ModelSequence* first = pick(o.a);
  ModelSequence* second = pick(o.b);
  if (first == nullptr) return;
  std::vector<ModelSequence*> staged{first};
  if (second != first) staged.push_back(second);
  const std::int64_t count = 1 + o.c / 8 % 13;
  const std::int64_t kept = o.b % (count + 1);
  enum End { kCommit, kRollBack, kDrop, kPrefix, kKeep, kSpoiled };
  constexpr const char* kEnds[] = {"commit", "rollback", "drop", "commit_prefix", "keep", "a NaN in the last layer"};
  const auto end = static_cast<End>(o.c % 6);
  code_.back() =
      formatted("step({{s{}, s{}}}, {} tokens, {}, keep {});", first->id, second->id, count, kEnds[end], kept);
  auto transaction = cache_->begin();
  if (!transaction.ok()) return fail("begin");
  std::vector<std::vector<TokenId>> tokens;
  for (ModelSequence* sequence : staged) {
    tokens.push_back(fresh_tokens(count));
    Status status;
    const bool spoiled = end == kSpoiled && sequence == staged.back();
    if (!stage(*transaction, *sequence, tokens.back(), spoiled, status)) {
      if (!spoiled || status.code() != Code::kNotFinite) {
        const auto needed = static_cast<std::int64_t>(staged.size()) * pages_of(count);
        succeeded(status, "append", needed, needed);
      }
      return;
    }
    compare_all();
  }
  if (end == kRollBack) transaction->rollback();
  if (end == kRollBack || end == kDrop) return;
  if (end == kKeep && !transaction->keep(first->id, kept).ok()) fail("keep");
  if (!(end == kPrefix ? transaction->commit_prefix(kept) : transaction->commit()).ok()) return fail("commit");
  for (std::size_t i = 0; i < staged.size(); ++i) {
    const bool all = end == kCommit || (end == kKeep && i > 0);
    staged[i]->tokens.insert(staged[i]->tokens.end(), tokens[i].begin(), tokens[i].begin() + (all ? count : kept));
    redefine(*staged[i]);
  }
}

void Machine::hole(const Operation& o) {
  const ModelSequence* sequence = pick(o.a);
  if (sequence == nullptr) return;
  const std::int64_t off = o.b % 2 == 0 ? 1 + o.c % 5 : -1 - o.c % 5;
  code_.back() = formatted("append at {} to s{};", sequence->frontier() + off, sequence->id);
  auto transaction = cache_->begin();
  const Batch batch =
      make_batch(geometry_, 0, sequence->frontier() + off, ids(1, 3), options_.layers[0].indexed, options_.index_only);
  if (transaction->append(sequence->id, 0, batch.view).code() != Code::kNotContiguous) fail("a hole was taken");
  if (!cache_->truncate(sequence->id, sequence->count()).ok()) fail("a refused append has touched the sequence");
}

void Machine::take_snapshot(const Operation& o) {
  const ModelSequence* sequence = pick(o.a);
  if (sequence == nullptr || snapshots_.size() == kMostSnapshots) return;
  code_.back() = formatted("snapshot(s{});", sequence->id);
  snapshots_.push_back({*cache_->snapshot(sequence->id), sequence->image});
}

void Machine::drop_snapshot(const Operation& o) {
  if (snapshots_.empty()) return;
  const std::size_t which = o.a % snapshots_.size();
  code_.back() = formatted("drop snapshot {};", which);
  snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(which));
}

// Everything goes through a file into another cache, which then is the cache.
void Machine::save_and_restore(const Operation& o) {
  if (folder_.empty()) return;
  const auto mode = static_cast<RestoreMode>(o.a % 3);
  code_.back() = formatted("save and restore({});", o.a % 3);
  UnsyncedCalls calls;
  const std::string path =
      formatted("{}/program-{}", folder_, code_.size());  // a new name: replacing waits for the disk
  const Status saved = save_cache(*cache_, path, calls);
  if (options_.index_only) {
    if (saved.code() != Code::kUnsupported) fail("an index store was saved");
    return;
  }
  if (!saved.ok()) return fail(std::string(saved.message()));
  snapshots_.clear();  // those of mapped pages would keep the old cache's pages, which is tested elsewhere
  auto cache = make_cache(geometry_, options_);
  const auto restored = cache->restore(path, mode);
  std::filesystem::remove(path);  // a mapping does not need the name
  if (restored.status().code() == Code::kCapacity && cache_->bytes().mapped > 0)
    return;  // mapped pages took none of it
  if (!restored.ok()) return fail(std::string(restored.status().message()));
  mapped_unseen_ = mode == RestoreMode::kMap;
  if (restored->size() != sequences_.size()) return fail("not all sequences were restored");
  for (const RestoredSequence& r : *restored) {
    const auto at =
        std::find_if(sequences_.begin(), sequences_.end(), [&](const ModelSequence& s) { return s.id == r.saved; });
    if (at == sequences_.end()) return fail("a sequence was restored that was not saved");
    at->id = r.id - (std::int64_t{1} << 32);  // two numberings must not meet
  }
  for (ModelSequence& sequence : sequences_) sequence.id += std::int64_t{1} << 32;
  cache_ = std::move(cache);
}

}  // namespace seriatim::cache_testing
