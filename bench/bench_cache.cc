// The cache's life: append, fork, rewind, evict, save and restore.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/format.hpp"
#include "bench/bench.hpp"
#include "bench/inputs.hpp"
#include "seriatim/cache_file.hpp"
#include "seriatim/step.hpp"

namespace seriatim::bench {
namespace {

// Layers of QSA's real geometry, one unless told otherwise, and tokens to append to them.
class Store {
 public:
  Store(const Geometry& geometry, std::int64_t capacity_tokens, std::int64_t batch_tokens, std::int64_t page_tokens = 0,
        std::int64_t layers = 1)
      : geometry_(geometry), tokens_(batch_tokens), layers_(layers) {
    CacheOptions options;
    options.layers.resize(static_cast<std::size_t>(layers));
    options.capacity_tokens = capacity_tokens;
    options.page_tokens = page_tokens;
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
  double token_bytes() const {
    return static_cast<double>(keys_.size() + values_.size() + index_keys_.size()) / static_cast<double>(tokens_);
  }

  // Appends `count` tokens to a sequence, at most as many as there are.
  void append(SequenceId sequence, std::int64_t count) {
    const VisibleRun run = cache_->snapshot(sequence)->run();
    append_at(sequence, run.anchor + run.tokens, count);
  }
  void append_at(SequenceId sequence, std::int64_t position, std::int64_t count) {
    TokenBatch batch;
    batch.first_position = position;
    batch.keys = dense_view(std::as_const(keys_).data(), geometry_.kv_dtype(),
                            {count, geometry_.kv_heads(), geometry_.head_dim()});
    batch.values = dense_view(std::as_const(values_).data(), geometry_.kv_dtype(),
                              {count, geometry_.kv_heads(), geometry_.value_dim()});
    batch.index_keys =
        dense_view(std::as_const(index_keys_).data(), geometry_.index_dtype(), {count, geometry_.index_dim()});
    auto step = cache_->begin();
    for (std::int64_t l = 0; l < layers_; ++l) require(step->append(sequence, l, batch).ok(), "append");
    require(step->commit().ok(), "commit");
  }
  // The same bytes as one plain copy to `to`.
  void copy_plainly(std::byte* to, std::int64_t count) const {
    for (const auto* from : {&keys_, &values_, &index_keys_}) {
      const std::size_t bytes = from->size() / static_cast<std::size_t>(tokens_) * static_cast<std::size_t>(count);
      std::memcpy(to, from->data(), bytes);
      to += bytes;
    }
  }
  void fill(std::int64_t count) {
    while (tokens() < count) append(sequence_, std::min(tokens_, count - tokens()));
  }

 private:
  Geometry geometry_;
  std::int64_t tokens_;
  std::int64_t layers_;
  std::unique_ptr<Cache> cache_;
  SequenceId sequence_ = -1;
  std::vector<std::byte> keys_, values_, index_keys_;
};

void appends(Bench& bench, std::int64_t count, std::int64_t layers) {
  const std::int64_t room_tokens = 16'384 / layers;  // far more than the CPU's caches hold
  Store store(real_geometry(DType::kF32), room_tokens, count, 0, layers);
  store.fill(room_tokens);
  std::int64_t held = room_tokens;
  const Contestant ours{"ours",
                        [&] {
                          if (held + count > room_tokens) {
                            require(store.cache().truncate(store.sequence(), 0).ok(), "truncate");
                            held = 0;
                          }
                          store.append_at(store.sequence(), held, count);
                          held += count;
                        },
                        {}};
  // To as much other memory, in turns, as the cache has.
  const auto token_bytes = static_cast<std::int64_t>(store.token_bytes());
  std::vector<std::byte> room(static_cast<std::size_t>(layers * room_tokens * token_bytes));
  std::int64_t copied = 0;
  const Contestant memcpy_of_it{"memcpy of the same bytes",
                                [&] {
                                  if (copied + layers * count > layers * room_tokens) copied = 0;
                                  for (std::int64_t l = 0; l < layers; ++l, copied += count) {
                                    store.copy_plainly(room.data() + copied * token_bytes, count);
                                  }
                                },
                                {}};
  Work work;
  work.cold_bytes = static_cast<double>(layers * count) * store.token_bytes();
  bench.add(formatted("append {} token{}, 24 x 2 x 256, {} layer{}", count, count == 1 ? "" : "s", layers,
                      layers == 1 ? "" : "s"),
            ours, work, 1, {memcpy_of_it}, {0.0, 0.0, "stated"});
}

void note(Bench& bench, std::string name, const Contestant& ours, const Contestant& limit, std::string limit_words,
          double most, std::string target) {
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
    return Contestant{
        "fork", [&store] { require(store.cache().remove(*store.cache().fork(store.sequence())).ok(), "fork"); }, {}};
  };
  const auto fork_and_write = [](Store& store) {  // the first writer goes on in place, the second copies its page
    return Contestant{
        "fork and write",
        [&store] {
          const SequenceId other = *store.cache().fork(store.sequence());
          store.append(other, 1);
          store.append(store.sequence(), 1);
          require(store.cache().remove(other).ok() && store.cache().truncate(store.sequence(), store.tokens() - 1).ok(),
                  "fork");
        },
        {}};
  };
  const auto rewind = [](Store& store) {
    return Contestant{"rewind",
                      [&store] {
                        require(store.cache().truncate(store.sequence(), store.tokens() - 3).ok(), "truncate");
                        store.append(store.sequence(), 3);
                      },
                      {}};
  };
  const auto evict = [](Store& store, std::int64_t evicted) {
    return Contestant{"evict",
                      [&store, evicted] {
                        const SequenceId other = *store.cache().fork(store.sequence());
                        require(store.cache().evict_prefix(other, evicted).ok() && store.cache().remove(other).ok(),
                                "evict");
                      },
                      {}};
  };
  note(bench, "fork and drop at 262,143 tokens", fork(large), fork(small), "the same at 1,023 tokens", 1.5, "<= 1.5x");
  note(bench, "fork, both write, at 262,143 tokens", fork_and_write(large), fork_and_write(small),
       "the same at 1,023 tokens", 1.5, "<= 1.5x");
  note(bench, "rewind 3 and append 3 at 262,143 tokens", rewind(large), rewind(small), "the same at 1,023 tokens", 1.5,
       "<= 1.5x");
  note(bench, "evict 1,024 at 262,143 tokens", evict(large, 1024), evict(small, 512), "evict 512 of 1,023", 0.0,
       "stated");
  note(bench, "evict 1,023 at 262,143 tokens: all pooled again", evict(large, 1023), evict(small, 511),
       "evict 511 of 1,023", 0.0, "stated");
}

// The same row of the same tokens in pages of 256 and in one page, which is contiguous memory per head.
void pages(Bench& bench) {
  constexpr std::int64_t kTokens = 32'768;
  const Geometry geometry = real_geometry(DType::kBf16);
  Store paged(geometry, kTokens, 512);
  Store contiguous(geometry, kTokens, 512, kTokens);
  for (Store* store : {&paged, &contiguous}) store->fill(kTokens);
  Random random(5);
  std::vector<std::int32_t> scattered;  // budget_tokens of whole groups, then three of a raw tail
  const std::int64_t groups = geometry.budget_tokens() / geometry.group_tokens();
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t stride = kTokens / 4 / groups;
    const std::int64_t group =
        g * stride + static_cast<std::int64_t>(random.uniform() * 0.5f * static_cast<float>(stride) +
                                               0.5f * static_cast<float>(stride));
    for (std::int64_t t = 0; t < 4; ++t)
      scattered.push_back(static_cast<std::int32_t>(std::min(group, (g + 1) * stride - 1) * 4 + t));
  }
  std::vector<std::int32_t> dense(static_cast<std::size_t>(geometry.row_capacity()));
  for (std::size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<std::int32_t>(i);
  const std::int64_t position = kTokens - 1;
  const auto query = uniform_elements(random, geometry.query_heads() * geometry.head_dim(), DType::kBf16);
  auto engine = Engine::host(bench.executor(1), bench.kernels());
  require(engine.ok(), "engine");
  const auto attend_over = [&](Store& store, std::vector<std::int32_t>& row, std::vector<float>& output) {
    const Snapshot snapshot = *store.cache().snapshot(store.sequence());
    auto count = static_cast<std::int32_t>(row.size());
    const AttendQueries queries{
        dense_view(query.data(), DType::kBf16, {1, geometry.query_heads(), geometry.head_dim()}), {&position, 1}, {}};
    const Status status =
        engine->attend(snapshot.layer(0), queries, {row.data(), geometry.row_capacity(), &count},
                       dense_view(output.data(), DType::kF32, {1, geometry.query_heads(), geometry.value_dim()}), {});
    require(status.ok(), "attend");
  };
  for (auto* const row : {&dense, &scattered}) {
    const char* const words = row == &dense ? "neighbouring" : "scattered";
    std::vector<float> output(static_cast<std::size_t>(geometry.query_heads() * geometry.value_dim()));
    std::vector<float> same = output;
    attend_over(paged, *row, output);
    attend_over(contiguous, *row, same);
    require(output == same, "attend through pages");
    note(bench, formatted("attend {} {} entries, bf16, through pages", row->size(), words),
         {"pages", [&] { attend_over(paged, *row, output); }, {}},
         {"contiguous", [&] { attend_over(contiguous, *row, same); }, {}}, "the same in one page", 1.05, "<= 1.05x");
  }
}

// Files in memory where the system has such a place, so that a disk's mood is no part of the measure.
std::string file_folder() {
  const std::string shared = "/dev/shm";
  return std::filesystem::is_directory(shared) && ::access(shared.c_str(), W_OK) == 0
             ? shared
             : std::filesystem::temp_directory_path().string();
}

void copy_file(const std::string& from, const std::string& to) {
  require(std::system(formatted("cp '{}' '{}'", from, to).c_str()) == 0, "cp");
}

void files(Bench& bench) {
  const std::int64_t tokens = bench.quick() ? 32'768 : 262'144;
  const Geometry geometry = real_geometry(DType::kF32);
  Store store(geometry, tokens, 512);
  store.fill(tokens);
  const std::string path = formatted("{}/seriatim-bench-{}", file_folder(), ::getpid());
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
  const std::string what = formatted("{} tokens, {:.0f} MB", tokens, megabytes);
  note(bench, "save " + what, {"save", [&] { require(store.cache().save(path).ok(), "save"); }, {}}, cp,
       "cp of the file, in memory", 1.3, "<= 1.3x");
  note(bench, "restore by copying " + what, {"restore", restore(RestoreMode::kCopy), {}}, cp,
       "cp of the file, in memory", 1.3, "<= 1.3x");
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
  appends(bench, 1, 1);
  appends(bench, 1, 12);  // a step of an engine is one transaction
  appends(bench, 512, 1);
  lengths(bench);
  pages(bench);
  files(bench);
}

}  // namespace seriatim::bench
