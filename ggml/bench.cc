// Nodes of ggml's graphs: this backend against ggml's CPU backend, in one process, by turns.
//
//   ggml_bench [threads=2] [rounds=15] [cells=65536] [only=TEXT] [clock=wall]
//
// clock=cpu counts the process's own time instead: for one thread on a machine that others use too.
// Before anything is timed the two answers are compared. A line per case: the median of each, in brackets how far the
// tenth and the ninetieth percentile lie apart in percent of it, and how many times faster ours is.
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.hpp"
#include "plugin.hpp"
#include "tests/qsa_model.hpp"

namespace seriatim::plugin {
namespace {

struct Asked {
  int threads = 2;
  int rounds = 15;
  std::int64_t cells = 65536;
  std::string only;
  bool cpu_clock = false;
};

class Numbers {  // splitmix64
 public:
  float uniform() { return static_cast<float>(static_cast<std::int32_t>(next() >> 40) - (1 << 23)) * 0x1p-23f; }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }

 private:
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_ = 1;
};

class Bench {
 public:
  explicit Bench(const Asked& asked)
      : asked_(asked),
        context_(ggml_init({std::size_t{3} << 30, nullptr, false})),
        cpu_(ggml_backend_cpu_init()),
        ours_(ggml_backend_dev_init(ggml_backend_reg_dev_get(registry(), 0), nullptr)) {
    ggml_backend_cpu_set_n_threads(cpu_, asked.threads);
    reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(registry(), "ggml_backend_set_n_threads"))(ours_, asked.threads);
    std::printf("%d threads, %d rounds by turns, medians\n%-64s %22s %22s %8s\n", asked.threads, asked.rounds, "node",
                "ggml, ms", "seriatim, ms", "times");
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    ggml_backend_free(ours_);
    ggml_backend_free(cpu_);
    ggml_free(context_);
  }

  void top_k(std::int64_t keep) {
    const std::string name = label("TOP_K, %lld cells, width %lld", asked_.cells, keep);
    if (!wanted(name)) return;
    ggml_tensor* scores = random(GGML_TYPE_F32, {asked_.cells, 1, 1, 1});
    compare(name, ggml_top_k(context_, scores, static_cast<int>(keep)), same_set);
  }

  // Decoding: one token, `visible` of the cells.
  void attention(std::string_view what, ggml_type type, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                 std::int64_t key_dim, std::int64_t value_dim, bool alias, std::int64_t visible) {
    const std::string name = label("FLASH_ATTN_EXT, %s, %s, %lld token%s", std::string(what).c_str(),
                                   ggml_type_name(type), tokens, tokens == 1 ? "" : "s");
    if (!wanted(name)) return;
    ggml_tensor* q = ggml_permute(context_, random(GGML_TYPE_F32, {key_dim, heads, tokens, 1}), 0, 2, 1, 3);
    ggml_tensor* k = ggml_permute(context_, random(type, {key_dim, kv_heads, asked_.cells, 1}), 0, 2, 1, 3);
    ggml_tensor* v = alias
                         ? ggml_view_4d(context_, k, value_dim, k->ne[1], k->ne[2], 1, k->nb[1], k->nb[2], k->nb[3], 0)
                         : ggml_permute(context_, random(type, {value_dim, kv_heads, asked_.cells, 1}), 0, 2, 1, 3);
    ggml_tensor* mask = tensor(GGML_TYPE_F16, {asked_.cells, tokens, 1, 1});
    for (std::int64_t t = 0; t < tokens; ++t) hide_all_but(mask, t, visible);
    ggml_tensor* node =
        ggml_flash_attn_ext(context_, q, k, v, mask, 1.0f / std::sqrt(static_cast<float>(key_dim)), 0.0f, 0.0f);
    ggml_prec_set_acc(node, GGML_PREC_F32);
    node->op_params[4] = static_cast<std::int32_t>(visible);
    compare(name, node, [](const auto& a, const auto& b) { return normalized_error(a, b) < 5e-4; });
  }

  // A sparse layer of qwen4exp, from the index cache on. ggml's own selection drops pieces of groups, so that only
  // tails of all but one token compare.
  void qsa(ggml_type type, std::int64_t tokens, testing::QsaEnd end) {
    const bool attends = end == testing::QsaEnd::kAttention;
    const std::string name = label("qwen4exp, index cache to %s, %s, %lld token%s", attends ? "attention" : "selection",
                                   ggml_type_name(type), tokens, tokens == 1 ? "" : "s");
    if (!wanted(name)) return;
    testing::QsaShape shape;
    shape.held = asked_.cells - 1;
    shape.tokens = tokens;
    shape.cells = asked_.cells;
    shape.budget = 2048;
    shape.dim = 128;
    shape.rotary = 64;
    shape.heads = 24;
    shape.head_dim = 256;
    shape.type = type;
    shape.rope_base = 1e7f;
    testing::QsaModel model(shape, [this] { return numbers_.uniform(); });
    testing::QsaModel same(shape, [this] { return numbers_.uniform(); });
    same.take_from(model);
    testing::QsaContext theirs(asked_.threads, false), ours(asked_.threads);
    model.build(0, tokens);
    same.build(0, tokens);
    if (!theirs.prepare(same, end) || !ours.prepare(model, end)) fail(name, "no memory");
    const auto set_inputs = [&] {  // ggml puts other tensors where they were read
      same.set_inputs();
      model.set_inputs();
    };
    const auto run_one = [&](testing::QsaContext& context, const testing::QsaModel& of) {
      if (!context.compute()) fail(name, "a graph failed");
      const auto* bytes = static_cast<const std::byte*>(of.end(end)->data);
      return Bytes(bytes, bytes + ggml_nbytes(of.end(end)));
    };
    const Bytes want = run_one(theirs, same), got = run_one(ours, model);
    const std::size_t each = want.size() / static_cast<std::size_t>(tokens);
    for (std::int64_t t = 0; t < tokens; ++t) {
      if ((model.position(t) + 1) % 4 != 3) continue;
      const auto token = [&](const Bytes& all) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(t) * static_cast<std::ptrdiff_t>(each);
        return Bytes(first, first + static_cast<std::ptrdiff_t>(each));
      };
      const bool near =
          attends ? normalized_error(token(got), token(want)) < 5e-4 : difference(token(got), token(want)) < 0.002;
      if (!near) fail(name, "the answers differ");
    }
    time(name, [&] { theirs.compute(); }, [&] { ours.compute(); }, set_inputs);
  }

  void indexer(ggml_type type, std::int64_t heads, std::int64_t dim, std::int64_t tokens) {
    const std::string name = label("LIGHTNING_INDEXER, %lld x %lld, %s, %lld token%s", heads, dim, ggml_type_name(type),
                                   tokens, tokens == 1 ? "" : "s");
    if (!wanted(name)) return;
    ggml_tensor* q = random(GGML_TYPE_F32, {dim, heads, tokens, 1});
    ggml_tensor* k = random(type, {dim, 1, asked_.cells, 1});
    ggml_tensor* w = random(GGML_TYPE_F32, {heads, tokens, 1, 1});
    ggml_tensor* mask = tensor(GGML_TYPE_F16, {asked_.cells, tokens, 1, 1});
    std::memset(mask->data, 0, ggml_nbytes(mask));
    compare(name, ggml_lightning_indexer(context_, q, k, w, mask),
            [](const auto& a, const auto& b) { return normalized_error(a, b) < 1e-6; });
  }

 private:
  using Bytes = std::vector<std::byte>;

  template <typename... Parts>
  static std::string label(const char* format, Parts... parts) {
    char text[128];
    std::snprintf(text, sizeof text, format, parts...);
    return text;
  }
  bool wanted(const std::string& name) const { return name.find(asked_.only) != std::string::npos; }

  ggml_tensor* tensor(ggml_type type, std::initializer_list<std::int64_t> shape) {
    return ggml_new_tensor(context_, type, GGML_MAX_DIMS, shape.begin());
  }
  ggml_tensor* random(ggml_type type, std::initializer_list<std::int64_t> shape) {
    ggml_tensor* made = tensor(type, shape);
    std::vector<float> row(static_cast<std::size_t>(made->ne[0]));
    for (std::int64_t i = 0; i < ggml_nrows(made); ++i) {
      for (float& x : row) x = numbers_.uniform();
      if (type == GGML_TYPE_F32) {
        std::memcpy(static_cast<float*>(made->data) + i * made->ne[0], row.data(), row.size() * sizeof(float));
      } else {
        ggml_quantize_chunk(type, row.data(),
                            static_cast<std::byte*>(made->data) + static_cast<std::size_t>(i) * made->nb[1], 0, 1,
                            made->ne[0], nullptr);
      }
    }
    return made;
  }
  // Runs of four cells, as groups are, and the newest.
  void hide_all_but(ggml_tensor* mask, std::int64_t token, std::int64_t visible) {
    auto* row = static_cast<std::uint16_t*>(mask->data) + token * mask->ne[0];
    std::fill_n(row, mask->ne[0], std::uint16_t{0xfc00});
    for (std::int64_t left = visible / 4; left > 0;) {
      std::uint16_t* group = row + numbers_.below(mask->ne[0] / 4) * 4;
      if (*group == 0) continue;
      std::fill_n(group, 4, std::uint16_t{0});
      --left;
    }
  }

  static bool same_set(const Bytes& a, const Bytes& b) {
    std::vector<std::int32_t> one(a.size() / 4), other(b.size() / 4);
    std::memcpy(one.data(), a.data(), a.size());
    std::memcpy(other.data(), b.data(), b.size());
    std::sort(one.begin(), one.end());
    std::sort(other.begin(), other.end());
    return one == other;
  }
  static double normalized_error(const Bytes& a, const Bytes& b) {
    double error = 0.0, power = 1e-30;
    for (std::size_t i = 0; i < a.size(); i += 4) {
      float x, y;
      std::memcpy(&x, a.data() + i, 4);
      std::memcpy(&y, b.data() + i, 4);
      error += std::pow(static_cast<double>(x) - static_cast<double>(y), 2);
      power += std::pow(static_cast<double>(y), 2);
    }
    return error / power;
  }

  // The part of a row that is not in the other: cells at the edge of a selection change places by rounding alone.
  static double difference(const Bytes& a, const Bytes& b) {
    std::vector<std::int32_t> one(a.size() / 4), other(b.size() / 4);
    std::memcpy(one.data(), a.data(), a.size());
    std::memcpy(other.data(), b.data(), b.size());
    std::sort(other.begin(), other.end());
    const auto strangers = std::count_if(one.begin(), one.end(), [&](std::int32_t cell) {
      return !std::binary_search(other.begin(), other.end(), cell);
    });
    return static_cast<double>(strangers) / static_cast<double>(one.size());
  }

  [[noreturn]] static void fail(const std::string& name, const char* why) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), why);
    std::exit(1);
  }

  double now() const {
    timespec at;
    clock_gettime(asked_.cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &at);
    return 1e3 * static_cast<double>(at.tv_sec) + 1e-6 * static_cast<double>(at.tv_nsec);
  }

  template <typename Equal>
  void compare(const std::string& name, ggml_tensor* node, Equal equal) {
    ggml_cgraph* graph = ggml_new_graph_custom(context_, 8, false);
    ggml_graph_add_node(graph, node);
    node->flags |= GGML_TENSOR_FLAG_COMPUTE;
    const auto run = [&](ggml_backend_t backend) {
      if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) fail(name, "a graph failed");
    };
    const auto answer = [&](ggml_backend_t backend) {
      std::memset(node->data, 0xa5, ggml_nbytes(node));
      run(backend);
      const auto* bytes = static_cast<const std::byte*>(node->data);
      return Bytes(bytes, bytes + ggml_nbytes(node));
    };
    const Bytes want = answer(cpu_), got = answer(ours_);
    if (!equal(got, want)) fail(name, "the answers differ");
    time(name, [&] { run(cpu_); }, [&] { run(ours_); }, [] {});
  }

  template <typename Theirs, typename Ours, typename Before>
  void time(const std::string& name, Theirs run_theirs, Ours run_ours, Before before) const {
    std::vector<double> theirs, ours;
    const auto one = [&](auto& run, std::vector<double>& times) {
      const double begin = now();
      run();
      times.push_back(now() - begin);
    };
    for (int round = 0; round < asked_.rounds; ++round) {
      before();
      one(run_theirs, theirs);
      one(run_ours, ours);
    }
    std::sort(theirs.begin(), theirs.end());
    std::sort(ours.begin(), ours.end());
    const auto at = [](const std::vector<double>& t, double part) {
      return t[static_cast<std::size_t>(part * static_cast<double>(t.size() - 1))];
    };
    const auto spread = [&](const std::vector<double>& t) { return 100.0 * (at(t, 0.9) - at(t, 0.1)) / at(t, 0.5); };
    std::printf("%-64s %12.3f (%5.1f%%) %12.3f (%5.1f%%) %8.1f\n", name.c_str(), at(theirs, 0.5), spread(theirs),
                at(ours, 0.5), spread(ours), at(theirs, 0.5) / at(ours, 0.5));
    std::fflush(stdout);
  }

  const Asked asked_;
  ggml_context* context_;
  ggml_backend_t cpu_;
  ggml_backend_t ours_;
  Numbers numbers_;
};

int main_of(int argc, char** argv) {
  Asked asked;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word(argv[i]);
    const auto value = [&](std::string_view key) { return std::string(word.substr(key.size())); };
    if (word.starts_with("threads=")) {
      asked.threads = std::atoi(value("threads=").c_str());
    } else if (word.starts_with("rounds=")) {
      asked.rounds = std::atoi(value("rounds=").c_str());
    } else if (word.starts_with("cells=")) {
      asked.cells = std::atoll(value("cells=").c_str());
    } else if (word.starts_with("only=")) {
      asked.only = value("only=");
    } else if (word == "clock=wall" || word == "clock=cpu") {
      asked.cpu_clock = word == "clock=cpu";
    } else {
      std::fprintf(stderr, "usage: ggml_bench [threads=2] [rounds=15] [cells=65536] [only=TEXT] [clock=wall|cpu]\n");
      return 2;
    }
  }
  if (asked.threads < 1 || asked.rounds < 1 || asked.cells < 4096) {
    std::fprintf(stderr, "ggml_bench: at least one thread, one round and 4096 cells\n");
    return 2;
  }
  Bench bench(asked);
  bench.top_k(2051);
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0}) {
    bench.attention("24 heads over 2 of 256, 2,051 visible", type, 1, 24, 2, 256, 256, false, 2051);
    bench.attention("64 heads over a latent of 576, 2,048 visible", type, 1, 64, 1, 576, 512, true, 2048);
    bench.indexer(type, 64, 128, 1);
    bench.indexer(type, 64, 128, 8);
    bench.qsa(type, 1, testing::QsaEnd::kSelection);
    bench.qsa(type, 1, testing::QsaEnd::kAttention);
    bench.qsa(type, 8, testing::QsaEnd::kAttention);
  }
  return 0;
}

}  // namespace
}  // namespace seriatim::plugin

int main(int argc, char** argv) { return seriatim::plugin::main_of(argc, argv); }
