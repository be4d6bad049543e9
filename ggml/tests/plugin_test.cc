// The device as ggml sees it: what it claims, whom it obeys, and what it leaves to the CPU backend.
#include "plugin.hpp"

#include <ggml-backend.h>

#include "attention.hpp"
#include "claims.hpp"
#include "counters.hpp"
#include "graph.hpp"
#include "options.hpp"
#include "support/foreign_float_environment.hpp"

namespace seriatim::plugin {
namespace {

using namespace testing;
using seriatim::testing::Random;

ggml_backend_dev_t device() { return ggml_backend_reg_dev_get(registry(), 0); }

template <typename Function>
Function offered(const char* name) {
  return reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(registry(), name));
}

// A context's backend.
struct Live {
  ggml_backend_t backend = ggml_backend_dev_init(device(), nullptr);
  ~Live() { ggml_backend_free(backend); }
  ggml_status run(ggml_context* context, ggml_tensor* node) const {
    ggml_cgraph* graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, node);
    return ggml_backend_graph_compute(backend, graph);
  }
};

TEST(Plugin, IsAnAcceleratorWithTheBuffersOfTheCpu) {
  ASSERT_NE(registry(), nullptr);
  EXPECT_EQ(registry(), registry());
  ASSERT_EQ(ggml_backend_reg_dev_count(registry()), 1u);
  EXPECT_EQ(ggml_backend_dev_type(device()), GGML_BACKEND_DEVICE_TYPE_ACCEL);
  EXPECT_EQ(ggml_backend_dev_buffer_type(device()), ggml_backend_cpu_buffer_type());
  EXPECT_TRUE(ggml_backend_dev_supports_buft(device(), ggml_backend_cpu_buffer_type()));
  ggml_backend_dev_props props;
  ggml_backend_dev_get_props(device(), &props);
  EXPECT_STREQ(props.name, "SERIATIM");
  EXPECT_TRUE(is_tested_version(ggml_version()));
  EXPECT_FALSE(is_tested_version("0.25.4"));
  EXPECT_FALSE(is_tested_version(""));
}

TEST(Plugin, TakesWhatItsVariableNames) {
  EXPECT_TRUE(options_named("off")->none());
  EXPECT_TRUE(options_named("topk")->top_k);
  EXPECT_FALSE(options_named("topk")->attention);
  EXPECT_TRUE(options_named("attend")->attention);
  EXPECT_FALSE(options_named("attend")->indexer);
  EXPECT_TRUE(options_named("all")->chains);
  EXPECT_TRUE(options_named("")->chains);
  EXPECT_FALSE(options_named("everything").has_value());
}

TEST(Plugin, ClaimsSelectionsThatLeaveSomethingOut) {
  Graph graph;
  ggml_tensor* scores = graph.tensor(GGML_TYPE_F32, {100, 2});
  EXPECT_TRUE(ggml_backend_dev_supports_op(device(), ggml_top_k(graph.context(), scores, 99)));
  EXPECT_FALSE(ggml_backend_dev_supports_op(device(), ggml_top_k(graph.context(), scores, 100)));
  EXPECT_FALSE(ggml_backend_dev_supports_op(device(), ggml_relu(graph.context(), scores)));
  EXPECT_TRUE(ggml_backend_dev_supports_op(device(), ggml_transpose(graph.context(), scores)));
}

// FLASH_ATTN_EXT of `tokens` tokens over a cache.
ggml_tensor* attention_over(Graph& graph, ggml_tensor* cache, std::int64_t tokens, int most_visible) {
  ggml_tensor* q = graph.tensor(GGML_TYPE_F32, {64, tokens, 4});
  ggml_tensor* k = ggml_permute(graph.context(), cache, 0, 2, 1, 3);
  ggml_tensor* mask = graph.tensor(GGML_TYPE_F16, {cache->ne[2], tokens});
  ggml_tensor* node = ggml_flash_attn_ext(graph.context(), q, k, k, mask, 0.125f, 0.0f, 0.0f);
  node->op_params[4] = most_visible;
  return node;
}

TEST(Plugin, DeclinesTheFirstNumberOfTokensOfACacheUntilAnotherIsAsked) {
  Graph graph;
  ggml_tensor* cache = graph.tensor(GGML_TYPE_F16, {64, 1, 256});
  FlashGate gate;
  ggml_tensor* one = attention_over(graph, cache, 1, 32);
  ggml_tensor* many = attention_over(graph, cache, 512, 32);
  EXPECT_FALSE(gate.opens_for(one));
  EXPECT_FALSE(gate.opens_for(one));
  EXPECT_TRUE(gate.opens_for(many));
  EXPECT_TRUE(gate.opens_for(one));
  gate.forget({cache});
  EXPECT_FALSE(gate.opens_for(one));
  gate.forget({});  // what was never opened goes too
  EXPECT_FALSE(gate.opens_for(many));
  EXPECT_TRUE(gate.opens_for(one));
}

TEST(Plugin, ForgetsACacheWhoseAttentionWasNeverClaimed) {
  Graph graph;
  ggml_tensor* cache = graph.tensor(GGML_TYPE_F16, {64, 1, 256});
  FlashGate gate;
  EXPECT_FALSE(gate.opens_for(attention_over(graph, cache, 1, 0), false));
  EXPECT_TRUE(gate.opens_for(attention_over(graph, cache, 512, 0), false));
  gate.forget({});
  EXPECT_FALSE(gate.opens_for(attention_over(graph, cache, 1, 32)));
}

// llama.cpp's programs make a context without memory first, to see what fits; it would give flash attention up.
TEST(Plugin, DeclinesACacheWithoutMemory) {
  Graph graph;
  ggml_tensor* cache = graph.tensor(GGML_TYPE_F16, {64, 1, 256});
  cache->data = nullptr;
  FlashGate gate;
  EXPECT_TRUE(gate.opens_for(attention_over(graph, cache, 512, 32)));  // a graph of tests
  ggml_set_name(cache, "cache_k_l0");
  EXPECT_FALSE(gate.opens_for(attention_over(graph, cache, 1, 32)));
  EXPECT_FALSE(gate.opens_for(attention_over(graph, cache, 512, 32)));
}

TEST(Plugin, FindsTheCacheBehindConcatenationsAndCopies) {
  Graph graph;
  ggml_tensor* cache = graph.tensor(GGML_TYPE_F16, {64, 1, 256});
  ggml_tensor* view = ggml_view_3d(graph.context(), cache, 64, 1, 128, cache->nb[1], cache->nb[2], 0);
  EXPECT_EQ(cache_behind(ggml_permute(graph.context(), view, 0, 2, 1, 3)), cache);
  EXPECT_EQ(cache_behind(ggml_concat(graph.context(), view, view, 2)), cache);
  EXPECT_EQ(cache_behind(ggml_cast(graph.context(), cache, GGML_TYPE_F32)), cache);
}

TEST(Plugin, ClaimsAttentionThatTheGraphCallsSparseAlone) {
  Graph graph;
  ggml_tensor* cache = graph.tensor(GGML_TYPE_F16, {64, 1, 256});
  ASSERT_FALSE(ggml_backend_dev_supports_op(device(), attention_over(graph, cache, 1, 32)));  // the first is declined
  EXPECT_TRUE(ggml_backend_dev_supports_op(device(), attention_over(graph, cache, 2, 32)));
  EXPECT_FALSE(ggml_backend_dev_supports_op(device(), attention_over(graph, cache, 2, 0)));
  EXPECT_FALSE(ggml_backend_dev_supports_op(device(), attention_over(graph, cache, 2, 256)));
}

TEST(Plugin, ClaimsAttentionUnderAMaskThatTheGraphMakes) {
  Graph graph;
  ggml_context* c = graph.context();
  ggml_tensor* cache = graph.tensor(GGML_TYPE_F16, {64, 1, 256});
  ggml_tensor* dense = attention_over(graph, cache, 2, 0);
  ggml_backend_dev_supports_op(device(), attention_over(graph, cache, 1, 0));
  EXPECT_FALSE(ggml_backend_dev_supports_op(device(), dense));
  ggml_tensor* given = graph.tensor(GGML_TYPE_F32, {256, 2});
  dense->src[3] = ggml_cast(c, given, GGML_TYPE_F16);
  EXPECT_FALSE(ggml_backend_dev_supports_op(device(), dense));
  dense->src[3] = ggml_cast(c, ggml_reshape_2d(c, ggml_add(c, given, given), 256, 2), GGML_TYPE_F16);
  EXPECT_TRUE(ggml_backend_dev_supports_op(device(), dense));
}

// Modes of the calling thread change no bit and are there afterwards.
TEST(Plugin, ComputesInAFloatingPointEnvironmentOfItsOwn) {
  Random random(4);
  Graph graph;
  ggml_tensor* scores = graph.tensor(GGML_TYPE_F32, {512});
  for (int i = 0; i < 512; ++i) static_cast<float*>(scores->data)[i] = static_cast<float>(random.below(100)) * 1e-45f;
  ggml_tensor* node = ggml_top_k(graph.context(), scores, 20);
  Live live;
  ASSERT_EQ(live.run(graph.context(), node), GGML_STATUS_SUCCESS);
  const auto want = Graph::bytes(node);
  for (const seriatim::testing::Foreign foreign : seriatim::testing::kEveryForeign) {
    spoil(node);
    bool unchanged = false;
    {
      const seriatim::testing::ForeignFloatEnvironment environment(foreign);
      const auto before = seriatim::testing::FloatRegisters::now();
      live.run(graph.context(), node);
      unchanged = seriatim::testing::FloatRegisters::now() == before;
    }
    EXPECT_TRUE(unchanged) << seriatim::testing::foreign_name(foreign);
    EXPECT_EQ(Graph::bytes(node), want) << seriatim::testing::foreign_name(foreign);
  }
}

TEST(Plugin, ComputesItsNodesAndLeavesOthersToTheCpuBackend) {
  Random random(1);
  Graph graph;
  ggml_tensor* scores = graph.random(random, GGML_TYPE_F32, {300, 3});
  ggml_tensor* doubled = ggml_scale(graph.context(), scores, 2.0f);  // not ours
  ggml_tensor* node = ggml_top_k(graph.context(), doubled, 20);
  const auto cpu = graph.by_ggml(node);
  spoil(node);
  spoil(doubled);
  const std::uint64_t taken = counters().top_k;
  Live live;
  offered<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads")(live.backend, 2);
  ASSERT_EQ(live.run(graph.context(), node), GGML_STATUS_SUCCESS);
  EXPECT_EQ(counters().top_k, taken + 1);
  std::vector<std::int32_t> want(60);
  std::memcpy(want.data(), cpu.data(), cpu.size());
  for (int row = 0; row < 3; ++row) std::sort(want.begin() + row * 20, want.begin() + (row + 1) * 20);
  EXPECT_EQ(std::memcmp(want.data(), node->data, cpu.size()), 0);
  std::uint64_t numbers[8] = {};
  EXPECT_EQ(offered<std::size_t (*)(std::uint64_t*, std::size_t)>("seriatim_read_counters")(numbers, 8), 8u);
  EXPECT_EQ(numbers[0], taken + 1);
}

TEST(Plugin, LeavesANodeThatTurnsOutUnfitToTheCpuBackend) {
  Random random(2);
  Graph graph;
  ggml_tensor* cache = graph.random(random, GGML_TYPE_F16, {64, 1, 256});
  ggml_tensor* node = attention_over(graph, cache, 2, 8);
  for (std::int64_t i = 0; i < 128; ++i) static_cast<float*>(node->src[0]->data)[i] = random.uniform();
  const auto want = graph.by_ggml(node);  // its mask is all zeros: 256 visible
  spoil(node);
  const std::uint64_t left = counters().left_to_ggml;
  Live live;
  ASSERT_EQ(live.run(graph.context(), node), GGML_STATUS_SUCCESS);
  EXPECT_EQ(counters().left_to_ggml, left + 1);
  EXPECT_EQ(Graph::bytes(node), want);
}

TEST(Plugin, StopsWhenTheApplicationAsks) {
  Random random(3);
  Graph graph;
  ggml_tensor* node = ggml_top_k(graph.context(), graph.random(random, GGML_TYPE_F32, {300, 3}), 20);
  Live live;
  bool stop = true;
  offered<ggml_backend_set_abort_callback_t>("ggml_backend_set_abort_callback")(
      live.backend, [](void* data) { return *static_cast<bool*>(data); }, &stop);
  EXPECT_EQ(live.run(graph.context(), node), GGML_STATUS_ABORTED);
  stop = false;
  EXPECT_EQ(live.run(graph.context(), node), GGML_STATUS_SUCCESS);
}

}  // namespace
}  // namespace seriatim::plugin
