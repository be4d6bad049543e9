// Tensors and graphs of ggml in memory of their own, and ggml's CPU backend on them.
#pragma once

#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "outcome.hpp"
#include "support/random.hpp"
#include "workers.hpp"

namespace seriatim::plugin::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Graph {
 public:
  explicit Graph(std::size_t bytes = std::size_t{64} << 20) : context_(ggml_init({bytes, nullptr, false})) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { ggml_free(context_); }

  ggml_context* context() const { return context_; }

  ggml_tensor* tensor(ggml_type type, std::initializer_list<std::int64_t> shape) {
    std::int64_t extents[GGML_MAX_DIMS] = {1, 1, 1, 1};
    std::copy(shape.begin(), shape.end(), extents);
    return ggml_new_tensor(context_, type, GGML_MAX_DIMS, extents);
  }

  // Random numbers of about `scale`, in whatever type; block types are made of f32 as ggml does.
  ggml_tensor* random(seriatim::testing::Random& random, ggml_type type, std::initializer_list<std::int64_t> shape,
                      float scale = 1.0f) {
    ggml_tensor* made = tensor(type, shape);
    std::vector<float> numbers(static_cast<std::size_t>(ggml_nelements(made)));
    for (float& x : numbers) x = scale * random.uniform();
    if (type == GGML_TYPE_F32) {
      std::memcpy(made->data, numbers.data(), numbers.size() * sizeof(float));
    } else {
      ggml_quantize_chunk(type, numbers.data(), made->data, 0, ggml_nrows(made), made->ne[0], nullptr);
    }
    return made;
  }

  // By ggml's CPU backend: what the node's data is then.
  std::vector<std::byte> by_ggml(ggml_tensor* node, int threads = 2) {
    ggml_cgraph* graph = ggml_new_graph(context_);
    ggml_build_forward_expand(graph, node);
    EXPECT_EQ(ggml_graph_compute_with_ctx(context_, graph, threads), GGML_STATUS_SUCCESS);
    return bytes(node);
  }

  static std::vector<std::byte> bytes(const ggml_tensor* node) {
    const auto* from = static_cast<const std::byte*>(node->data);
    return {from, from + ggml_nbytes(node)};
  }

 private:
  ggml_context* context_;
};

inline void spoil(ggml_tensor* node) { std::memset(node->data, 0xa5, ggml_nbytes(node)); }

// Of so many threads, whatever the machine has.
template <typename Op>
std::vector<std::byte> by_us(Op& op, ggml_tensor* node, int threads) {
  Workers workers;
  workers.set_threads(threads);
  spoil(node);
  EXPECT_EQ(op.compute(node, workers, AbortCallback{}), Outcome::kDone);
  return Graph::bytes(node);
}

// The error's power by the signal's, as test-backend-ops has it.
inline double normalized_error(std::span<const std::byte> got, std::span<const std::byte> want) {
  EXPECT_EQ(got.size(), want.size());
  EXPECT_FALSE(want.empty());
  double error = 0.0, power = 0.0;
  for (std::size_t i = 0; i < want.size(); i += sizeof(float)) {
    float a, b;
    std::memcpy(&a, got.data() + i, sizeof a);
    std::memcpy(&b, want.data() + i, sizeof b);
    if (std::isinf(a) && a == b) continue;
    const double difference = static_cast<double>(a) - static_cast<double>(b);
    error += difference * difference;
    power += static_cast<double>(b) * static_cast<double>(b);
  }
  EXPECT_GT(power, 0.0);
  return error / power;
}

}  // namespace seriatim::plugin::testing
