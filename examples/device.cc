// A decode loop on a device: the cache stays the host's, its pages have copies on the device, and each step runs there.
// The outputs are the host's, bit for bit. example_device [NAME]: a name of `seriatim devices`; without one, the first
// that keeps the bits.
#include "seriatim/device.hpp"

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "seriatim/seriatim.hpp"

using namespace seriatim;

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

// One token: on the device, and on the host to compare with.
Status decode(const Geometry& g, Cache& cache, SequenceId user, Engine& on, Engine& host, std::int64_t position,
              const Token& token, std::vector<float>& output, std::vector<float>& host_output) {
  std::vector<std::int32_t> row(static_cast<std::size_t>(g.row_capacity()));
  std::int32_t count = 0;
  const Rows rows{row.data(), g.row_capacity(), &count};
  const auto view = [&](std::vector<float>& to) {
    return dense_view(static_cast<void*>(to.data()), DType::kF32, {1, g.query_heads(), g.value_dim()});
  };

  auto step = cache.begin();
  if (!step.ok()) return step.status();
  TokenBatch batch{.first_position = position,
                   .keys = dense_view(token.key.data(), DType::kF32, {1, g.kv_heads(), g.head_dim()}),
                   .values = dense_view(token.value.data(), DType::kF32, {1, g.kv_heads(), g.value_dim()}),
                   .index_keys = dense_view(token.index_key.data(), DType::kF32, {1, g.index_dim()})};
  if (Status s = step->append(user, 0, batch); !s.ok()) return s;
  const auto layer = step->layer(user, 0);
  if (!layer.ok()) return layer.status();
  const IndexQueries index{
      dense_view(token.index_query.data(), DType::kF32, {1, g.index_heads(), g.index_dim()}), {}, {&position, 1}};
  const AttendQueries queries{
      dense_view(token.query.data(), DType::kF32, {1, g.query_heads(), g.head_dim()}), {&position, 1}, {}};

  // The device is brought up to the layer: the new token crosses, nothing else.
  if (Status s = on.plan(*layer, index, NanPolicy::kRefuse, rows); !s.ok()) return s;
  if (Status s = on.attend(*layer, queries, rows, view(output), {}); !s.ok()) return s;

  if (Status s = host.plan(*layer, index, NanPolicy::kRefuse, rows); !s.ok()) return s;
  if (Status s = host.attend(*layer, queries, rows, view(host_output), {}); !s.ok()) return s;
  return step->commit();
}

int fail(const Status& status) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(status.message().size()), status.message().data());
  return 1;
}

int main(int argc, char** argv) {
  std::string name = argc < 2 ? "" : argv[1];
  const auto found = list_devices();
  for (std::size_t i = 0; name.empty() && found.ok() && i < found->size(); ++i) {
    if ((*found)[i].lacks().empty()) name = (*found)[i].name;
  }
  if (name.empty()) {
    std::printf("no device on this machine\n");
    return 77;
  }
  GeometryOptions options;
  options.budget_tokens = 64;
  options.query_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 32;
  const auto g = Geometry::admit(options);
  if (!g.ok()) return fail(g.status());
  const auto device = Device::open(name);
  if (!device.ok()) return fail(device.status());
  auto on = Engine::on(*device);
  auto host = Engine::host();
  if (!on.ok() || !host.ok()) return 1;
  CacheOptions with{.capacity_tokens = 1024};
  const auto pages = on->allocator(*g, with);  // memory of the device, a copy of which the host has
  if (!pages.ok()) return fail(pages.status());
  with.allocator = pages->get();
  auto cache = Cache::create(*g, with);
  if (!cache.ok()) return fail(cache.status());
  const auto user = (*cache)->add();
  if (!user.ok()) return fail(user.status());

  std::mt19937 random(1);
  std::vector<float> output(static_cast<std::size_t>(g->query_heads() * g->value_dim()));
  std::vector<float> host_output(output.size());
  int same = 0;
  for (std::int64_t position = 0; position < 200; ++position) {
    if (Status s = decode(*g, **cache, *user, *on, *host, position, next_token(*g, random), output, host_output);
        !s.ok())
      return fail(s);
    same += output == host_output ? 1 : 0;
  }
  std::printf("200 tokens decoded, %d outputs equal to the host's\n", same);
  return same == 200 ? 0 : 1;
}
