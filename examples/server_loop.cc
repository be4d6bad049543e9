// A server's loop around the cache: two users of one system prompt, a rewind, a file that survives a restart.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/cache_file.hpp"
#include "seriatim/geometry.hpp"

using namespace seriatim;

namespace {

// What a model would give: keys, values and raw index keys of one layer for a run of tokens.
struct LayerTokens {
  std::vector<float> keys, values, index_keys;
  TokenBatch batch;
};

LayerTokens model_layer(const Geometry& g, std::int64_t layer, std::int64_t position, const std::string& text) {
  const auto count = static_cast<std::int64_t>(text.size());
  const auto fill = [&](std::int64_t row, float scale) {
    std::vector<float> all;
    for (const char token : text) {
      for (std::int64_t i = 0; i < row; ++i) all.push_back(scale * static_cast<float>(token % 13 + layer + i % 5));
    }
    return all;
  };
  LayerTokens t;
  t.keys = fill(g.kv_heads() * g.head_dim(), 0.01f);
  t.values = fill(g.kv_heads() * g.value_dim(), 0.02f);
  t.index_keys = fill(g.index_dim(), 0.03f);
  t.batch.first_position = position;
  t.batch.keys = dense_view(static_cast<const void*>(t.keys.data()), DType::kF32, {count, g.kv_heads(), g.head_dim()});
  t.batch.values =
      dense_view(static_cast<const void*>(t.values.data()), DType::kF32, {count, g.kv_heads(), g.value_dim()});
  t.batch.index_keys = dense_view(static_cast<const void*>(t.index_keys.data()), DType::kF32, {count, g.index_dim()});
  return t;
}

// One step of the engine: every layer of every user, then all of it is public or nothing is.
struct Turn {
  SequenceId user;
  std::string text;
};

Status step(Cache& cache, std::int64_t layers, const std::vector<Turn>& turns) {
  auto transaction = cache.begin();
  if (!transaction.ok()) return transaction.status();
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (const Turn& turn : turns) {
      const auto before = cache.snapshot(turn.user);
      if (!before.ok()) return before.status();
      const std::int64_t frontier = before->run().anchor + before->run().tokens;
      const LayerTokens tokens = model_layer(cache.geometry(), layer, frontier, turn.text);
      if (Status s = transaction->append(turn.user, layer, tokens.batch); !s.ok()) return s;
      // Here the engine plans and attends over transaction->layer(turn.user, layer), which holds the new tokens
      // already.
    }
  }
  return transaction->commit();
}

Status serve(const Geometry& geometry, const std::string& file) {
  CacheOptions options;
  options.layers.resize(3);
  options.capacity_bytes = std::int64_t{64} << 20;
  auto made = Cache::create(geometry, options);
  if (!made.ok()) return made.status();
  Cache& cache = **made;

  // The system prompt is computed once; both users share its pages.
  const auto ann = cache.add();
  if (!ann.ok()) return ann.status();
  if (Status s = step(cache, 3, {{*ann, std::string(1000, 'p')}}); !s.ok()) return s;
  const auto bob = cache.fork(*ann);
  if (!bob.ok()) return bob.status();
  const std::int64_t shared = cache.bytes().keys_values;
  if (Status s = step(cache, 3, {{*ann, "What is a rewind?"}, {*bob, "Count to three."}}); !s.ok()) return s;
  std::printf("a second user costs %lld of %lld bytes\n", static_cast<long long>(cache.bytes().keys_values - shared),
              static_cast<long long>(cache.bytes().keys_values));

  // Bob takes his question back, in the middle of a group if it must be, and asks another.
  if (Status s = cache.truncate(*bob, 1006); !s.ok()) return s;
  if (Status s = step(cache, 3, {{*bob, " to four, please."}}); !s.ok()) return s;

  // Both conversations outlive this process. The file is there whole or not at all.
  if (Status s = cache.save(file); !s.ok()) return s;

  // After the restart: mapped, so that the first token need not wait for the file to be read.
  auto again = Cache::create(geometry, options);
  if (!again.ok()) return again.status();
  const auto restored = (*again)->restore(file, RestoreMode::kMap);
  if (!restored.ok()) return restored.status();
  for (const RestoredSequence& user : *restored) {
    if (Status s = step(**again, 3, {{user.id, " And then?"}}); !s.ok()) return s;
    const auto now = (*again)->snapshot(user.id);
    if (!now.ok()) return now.status();
    std::printf("user %lld goes on at position %lld\n", static_cast<long long>(user.saved),
                static_cast<long long>(now->run().tokens));
    if (Status s = now->check(); !s.ok()) return s;  // nobody has cut the file meanwhile
  }
  return {};
}

}  // namespace

int main() {
  GeometryOptions options;
  options.head_dim = 64;
  options.index_dim = 64;
  const auto geometry = Geometry::admit(options);
  if (!geometry.ok()) return 1;
  const std::string file = (std::filesystem::temp_directory_path() / "seriatim_server_loop.safetensors").string();
  const Status status = serve(*geometry, file);
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  if (!status.ok()) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(status.message().size()), status.message().data());
    return 1;
  }
  return 0;
}
