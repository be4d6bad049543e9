// An engine that keeps keys and values in pages of its own: three users decode in one call over a pool of pages of 16
// tokens. Nothing is copied, and the outputs have the bits that the library's own cache gives.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "seriatim/borrow.hpp"
#include "seriatim/cache.hpp"
#include "seriatim/step.hpp"

using namespace seriatim;

namespace {

constexpr std::int64_t kPageTokens = 16;
constexpr std::int64_t kPages = 64;
constexpr std::int64_t kUsers = 3;
constexpr std::int64_t kSteps = 200;

// What the model hands to the layer for one token; random here.
struct Token {
  std::vector<float> key, value, index_key, query, index_query;
};

Token next_token(const Geometry& g, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const auto fill = [&](std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& v : values) v = normal(random);
    return values;
  };
  return {fill(g.kv_heads() * g.head_dim()), fill(g.kv_heads() * g.value_dim()), fill(g.index_dim()),
          fill(g.query_heads() * g.head_dim()), fill(g.index_heads() * g.index_dim())};
}

// The engine's pool of pages for keys and values, [pages, page tokens, kv heads, dim] each, handed out one by one.
struct Pool {
  explicit Pool(const Geometry& g)
      : row(static_cast<std::size_t>(g.kv_heads() * g.head_dim())),
        key_floats(static_cast<std::size_t>(kPages * kPageTokens) * row),
        value_floats(key_floats.size()),
        keys(view(g, key_floats)),
        values(view(g, value_floats)) {}

  static ConstTensor view(const Geometry& g, const std::vector<float>& floats) {
    return dense_view(floats.data(), DType::kF32, {kPages, kPageTokens, g.kv_heads(), g.head_dim()});
  }

  std::size_t row;  // floats of a token
  std::vector<float> key_floats, value_floats;
  ConstTensor keys, values;
  std::int32_t used = 0;
};

// One user of the engine: the pages that are theirs, in the order of their tokens.
struct User {
  explicit User(const Geometry& geometry) : g(&geometry), layer(geometry) {}

  void take(Pool& pool, Token newest_token) {
    token = std::move(newest_token);
    ++newest;
    if (newest % kPageTokens == 0) table.push_back(pool.used++);
    const auto place = static_cast<std::size_t>(table.back() * kPageTokens + newest % kPageTokens) * pool.row;
    std::ranges::copy(token.key, pool.key_floats.begin() + static_cast<std::ptrdiff_t>(place));
    std::ranges::copy(token.value, pool.value_floats.begin() + static_cast<std::ptrdiff_t>(place));
  }
  ConstTensor block_table() const {
    return dense_view(table.data(), DType::kI32, {static_cast<std::int64_t>(table.size())});
  }
  IndexQueries index_queries() const {
    return {dense_view(token.index_query.data(), DType::kF32, {1, g->index_heads(), g->index_dim()}), {}, {&newest, 1}};
  }
  AttendQueries queries() const {
    return {dense_view(token.query.data(), DType::kF32, {1, g->query_heads(), g->head_dim()}), {&newest, 1}, {}};
  }

  const Geometry* g;
  BorrowedLayer layer;
  SequenceId id = 0;  // in the index store, and in the cache to compare with
  std::vector<std::int32_t> table;
  std::int64_t newest = -1;  // position of the newest token
  Token token;
};

// A user's layer over the engine's pages: nothing is copied, and nothing but the block table is read.
Status bind(User& user, const Pool& pool, const LayerView& index) {
  BorrowedTensors tensors;
  tensors.keys = pool.keys;
  tensors.values = pool.values;
  tensors.block_table = user.block_table();
  tensors.index = &index;  // of an index store, which was given raw index keys alone
  return user.layer.bind({0, user.newest + 1}, tensors);
}

// One step of a batch: an ask for each user, whatever their lengths and wherever their tokens lie.
Status decode(Engine& engine, std::span<const LayerView> layers, std::span<const User> users, Rows rows, Tensor out) {
  std::vector<PlanAsk> plan;
  std::vector<AttendAsk> attend;
  for (std::size_t u = 0; u < users.size(); ++u) {
    plan.push_back({&layers[u], users[u].index_queries()});
    attend.push_back({&layers[u], users[u].queries()});
  }
  if (Status s = engine.plan(plan, NanPolicy::kRefuse, rows); !s.ok()) return s;
  return engine.attend(attend, rows, out, {});
}

// Appends every user's newest token: to the index store its index key alone, to a whole cache everything.
Status append(Transaction& transaction, std::span<User> users, bool index_only) {
  for (const User& user : users) {
    const Geometry& g = *user.g;
    TokenBatch batch;
    batch.first_position = user.newest;
    batch.index_keys = dense_view(user.token.index_key.data(), DType::kF32, {1, g.index_dim()});
    if (!index_only) {
      batch.keys = dense_view(user.token.key.data(), DType::kF32, {1, g.kv_heads(), g.head_dim()});
      batch.values = dense_view(user.token.value.data(), DType::kF32, {1, g.kv_heads(), g.value_dim()});
    }
    if (Status s = transaction.append(user.id, 0, batch); !s.ok()) return s;
  }
  return {};
}

// The layers of a transaction that hold the users' newest tokens.
Result<std::vector<LayerView>> layers_of(const Transaction& transaction, std::span<const User> users) {
  std::vector<LayerView> layers;
  for (const User& user : users) {
    const auto layer = transaction.layer(user.id, 0);
    if (!layer.ok()) return layer.status();
    layers.push_back(*layer);
  }
  return layers;
}

// Rows and outputs of one step.
struct Answer {
  explicit Answer(const Geometry& g)
      : stride(g.row_capacity()),
        positions(static_cast<std::size_t>(kUsers * stride)),
        counts(kUsers),
        output(static_cast<std::size_t>(kUsers * g.query_heads() * g.value_dim())),
        shape(&g) {}

  Rows rows() { return {positions.data(), stride, counts.data()}; }
  Tensor out() {
    return dense_view(static_cast<void*>(output.data()), DType::kF32,
                      {kUsers, shape->query_heads(), shape->value_dim()});
  }

  std::int64_t stride;
  std::vector<std::int32_t> positions, counts;
  std::vector<float> output;
  const Geometry* shape;
};

Status serve(const Geometry& g, std::int64_t& equal) {
  CacheOptions options{.capacity_tokens = kUsers * 1024};
  auto own = Cache::create(g, options);
  options.index_only = true;
  auto index = Cache::create(g, options);
  auto engine = Engine::host();
  if (!own.ok()) return own.status();
  if (!index.ok()) return index.status();
  if (!engine.ok()) return engine.status();

  Pool pool(g);
  std::vector<User> users;
  for (std::int64_t u = 0; u < kUsers; ++u) {
    const auto in_own = (*own)->add(), in_index = (*index)->add();
    if (!in_own.ok() || !in_index.ok() || *in_own != *in_index) return in_own.status();
    users.emplace_back(g).id = *in_own;
  }

  std::mt19937 random(1);
  Answer borrowed(g), copied(g);
  for (std::int64_t at = 0; at < kSteps; ++at) {
    for (User& user : users) user.take(pool, next_token(g, random));
    auto keys = (*index)->begin(), all = (*own)->begin();
    if (!keys.ok()) return keys.status();
    if (!all.ok()) return all.status();
    if (Status s = append(*keys, users, true); !s.ok()) return s;
    if (Status s = append(*all, users, false); !s.ok()) return s;
    const auto indexed = layers_of(*keys, users), whole = layers_of(*all, users);
    if (!indexed.ok()) return indexed.status();
    if (!whole.ok()) return whole.status();
    std::vector<LayerView> bound;
    for (std::size_t u = 0; u < users.size(); ++u) {
      if (Status s = bind(users[u], pool, (*indexed)[u]); !s.ok()) return s;
      bound.push_back(users[u].layer.view());
    }
    if (Status s = decode(*engine, bound, users, borrowed.rows(), borrowed.out()); !s.ok()) return s;
    if (Status s = decode(*engine, *whole, users, copied.rows(), copied.out()); !s.ok()) return s;
    if (Status s = keys->commit(); !s.ok()) return s;
    if (Status s = all->commit(); !s.ok()) return s;
    const std::size_t bytes = borrowed.output.size() * sizeof(float);
    equal += std::memcmp(borrowed.output.data(), copied.output.data(), bytes) == 0 ? 1 : 0;
  }
  return {};
}

}  // namespace

int main() {
  GeometryOptions options;  // QSA's groups of four, small here so that the example is quick
  options.budget_tokens = 64;
  options.query_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 32;
  const auto geometry = Geometry::admit(options);
  if (!geometry.ok()) return 1;
  std::int64_t equal = 0;
  if (const Status s = serve(*geometry, equal); !s.ok()) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(s.message().size()), s.message().data());
    return 1;
  }
  std::printf("%d steps of %d users: %d with the bits of the library's own cache\n", static_cast<int>(kSteps),
              static_cast<int>(kUsers), static_cast<int>(equal));
  return equal == kSteps ? 0 : 1;
}
