// The cache's life: append, fork, rewind, evict, save and restore.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "bench/bench.hpp"
#include "bench/inputs.hpp"
#include "seriatim/cache_file.hpp"

namespace seriatim::bench {
namespace {

// One layer of QSA's real geometry, and tokens to append to it.
class Store {
 public:
  Store(const Geometry& geometry, std::int64_t capacity_tokens, std::int64_t batch_tokens) : geometry_(geometry), tokens_(batch_tokens) {
    CacheOptions options;
    options.capacity_tokens = capacity_tokens;
    auto cache = Cache::create(geometry, options);
    require(cache.ok(), "cache");
    cache_ = std::move(*cache);
    sequence_ = *cache_->add();
    Random random(3);
    keys_ = uniform_elements(random, batch_tokens * geometry.kv_heads() * geometry.head_dim(), geometry.kv_dtype());
    values_ = uniform_elements(random, batch_tokens * geometry.kv_heads() * geometry.value_dim(), geometry.kv_dtype());
    index_keys_ = uniform_elements(random, batch_tokens * geometry.index_dim(), geometry.index_dtype());
  }

  Cache& cache() { return *cache_; }
  SequenceId sequence() const { return sequence_; }
  std::int64_t tokens() const { return cache_->snapshot(sequence_)->run().tokens; }
  double token_bytes() const { return static_cast<double>(keys_.size() + values_.size() + index_keys_.size()) / static_cast<double>(tokens_); }

  // Appends `count` tokens to a sequence, at most as many as there are.
  void append(SequenceId sequence, std::int64_t count) {
    const VisibleRun run = cache_->snapshot(sequence)->run();
    TokenBatch batch;
    batch.first_position = run.anchor + run.tokens;
    batch.keys = dense_view(std::as_const(keys_).data(), geometry_.kv_dtype(), {count, geometry_.kv_heads(), geometry_.head_dim()});
    batch.values = dense_view(std::as_const(values_).data(), geometry_.kv_dtype(), {count, geometry_.kv_heads(), geometry_.value_dim()});
    batch.index_keys = dense_view(std::as_const(index_keys_).data(), geometry_.index_dtype(), {count, geometry_.index_dim()});
    auto step = cache_->begin();
    require(step->append(sequence, 0, batch).ok() && step->commit().ok(), "append");
  }
  void fill(std::int64_t count) {
    while (tokens() < count) append(sequence_, std::min(tokens_, count - tokens()));
  }

 private:
  Geometry geometry_;
  std::int64_t tokens_;
  std::unique_ptr<Cache> cache_;
  SequenceId sequence_ = -1;
  std::vector<std::byte> keys_, values_, index_keys_;
};

void appends(Bench& bench, std::int64_t count) {
  constexpr std::int64_t kRoom = 16'384;  // far more than the CPU's caches hold
  Store store(real_geometry(DType::kF32), kRoom, count);
  store.fill(kRoom);
  const Contestant ours{"ours", [&] {
                          if (store.tokens() + count > kRoom) require(store.cache().truncate(store.sequence(), 0).ok(), "truncate");
                          store.append(store.sequence(), count);
                        }, {}};
  Work work;
  work.cold_bytes = static_cast<double>(count) * store.token_bytes();
  bench.add(fmt::format("append {} token{}, 24 x 2 x 256, one layer", count, count == 1 ? "" : "s"), ours, work, 1, {}, {});
}

void note(Bench& bench, std::string name, const Contestant& ours, const Contestant& limit, std::string limit_words, double most, std::string target) {
  const auto timings = interleave({ours, limit}, bench.effort());
  Measure m;
  m.name = std::move(name);
  m.ours = timings[0];
  m.limit_ns = timings[1].median_ns;
  m.limit = std::move(limit_words);
  m.target = std::move(target);
  if (most > 0.0) m.met = m.to_limit() <= most;
  bench.note(std::move(m));
}

// What takes the same time at any length, but for the table of pages.
void lengths(Bench& bench) {
  Store small(real_geometry(DType::kBf16), 8192, 512);
  small.fill(1023);
  Store large(real_geometry(DType::kBf16), 262'144 + 4096, 512);
  large.fill(262'143);
  const auto fork = [](Store& store) {
    return Contestant{"fork", [&store] { require(store.cache().remove(*store.cache().fork(store.sequence())).ok(), "fork"); }, {}};
  };
  const auto fork_and_write = [](Store& store) {  // the first writer goes on in place, the second copies its page
    return Contestant{"fork and write", [&store] {
                        const SequenceId other = *store.cache().fork(store.sequence());
                        store.append(other, 1);
                        store.append(store.sequence(), 1);
                        require(store.cache().remove(other).ok() && store.cache().truncate(store.sequence(), store.tokens() - 1).ok(), "fork");
                      }, {}};
  };
  const auto rewind = [](Store& store) {
    return Contestant{"rewind", [&store] {
                        require(store.cache().truncate(store.sequence(), store.tokens() - 3).ok(), "truncate");
                        store.append(store.sequence(), 3);
                      }, {}};
  };
  const auto evict = [](Store& store, std::int64_t evicted) {
    return Contestant{"evict", [&store, evicted] {
                        const SequenceId other = *store.cache().fork(store.sequence());
                        require(store.cache().evict_prefix(other, evicted).ok() && store.cache().remove(other).ok(), "evict");
                      }, {}};
  };
  note(bench, "fork and drop at 262,143 tokens", fork(large), fork(small), "the same at 1,023 tokens", 1.5, "<= 1.5x");
  note(bench, "fork, both write, at 262,143 tokens", fork_and_write(large), fork_and_write(small), "the same at 1,023 tokens", 1.5, "<= 1.5x");
  note(bench, "rewind 3 and append 3 at 262,143 tokens", rewind(large), rewind(small), "the same at 1,023 tokens", 1.5, "<= 1.5x");
  note(bench, "evict 1,024 at 262,143 tokens", evict(large, 1024), evict(small, 512), "evict 512 of 1,023", 0.0, "stated");
  note(bench, "evict 1,023 at 262,143 tokens: all pooled again", evict(large, 1023), evict(small, 511), "evict 511 of 1,023", 0.0, "stated");
}

// Files in memory where the system has such a place, so that a disk's mood is no part of the measure.
std::string file_folder() {
  const std::string shared = "/dev/shm";
  return std::filesystem::is_directory(shared) && ::access(shared.c_str(), W_OK) == 0 ? shared : std::filesystem::temp_directory_path().string();
}

void copy_file(const std::string& from, const std::string& to) {
  require(std::system(fmt::format("cp '{}' '{}'", from, to).c_str()) == 0, "cp");
}

void files(Bench& bench) {
  const std::int64_t tokens = bench.quick() ? 32'768 : 262'144;
  const Geometry geometry = real_geometry(DType::kF32);
  Store store(geometry, tokens, 512);
  store.fill(tokens);
  const std::string path = fmt::format("{}/seriatim-bench-{}", file_folder(), ::getpid());
  const std::string copy = path + "-copy";
  require(store.cache().save(path).ok() && verify_cache_file(path).ok(), "save");
  CacheOptions options;
  options.capacity_tokens = tokens;
  options.reserve = true;
  auto other = Cache::create(geometry, options);
  require(other.ok(), "cache");
  const auto restore = [&](RestoreMode mode) {
    return [&, mode] {
      const auto restored = (*other)->restore(path, mode);
      require(restored.ok() && (*other)->remove((*restored)[0].id).ok(), "restore");
    };
  };
  const Contestant cp{"cp", [&] { copy_file(path, copy); }, {}};
  const double megabytes = static_cast<double>(std::filesystem::file_size(path)) / 1e6;
  const std::string what = fmt::format("{} tokens, {:.0f} MB", tokens, megabytes);
  note(bench, "save " + what, {"save", [&] { require(store.cache().save(path).ok(), "save"); }, {}}, cp, "cp of the file, in memory", 1.3, "<= 1.3x");
  note(bench, "restore by copying " + what, {"restore", restore(RestoreMode::kCopy), {}}, cp, "cp of the file, in memory", 1.3, "<= 1.3x");
  const auto timings = interleave({{"map", restore(RestoreMode::kMap), {}}}, bench.effort());
  Measure mapped;
  mapped.name = "restore by mapping " + what;
  mapped.ours = timings[0];
  mapped.limit_ns = 10e6;
  mapped.limit = "10 ms";
  mapped.target = "<= 10 ms";
  mapped.met = mapped.to_limit() <= 1.0;
  bench.note(std::move(mapped));
  std::filesystem::remove(path);
  std::filesystem::remove(copy);
}

}  // namespace

void bench_cache(Bench& bench) {
  if (!bench.wants("cache")) return;
  appends(bench, 1);
  appends(bench, 512);
  lengths(bench);
  files(bench);
}

}  // namespace seriatim::bench
