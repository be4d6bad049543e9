// One decode step of a latent layer with groups of one token: scoring is the larger part, and bound by multiply-adds.

#include "base/format.hpp"
#include "bench/bench.hpp"
#include "bench/decode_step.hpp"
#include "bench/inputs.hpp"

namespace seriatim::bench {

void bench_latent(Bench& bench) {
  if (!bench.wants("latent")) return;
  constexpr std::int64_t kTokens = 131072;
  Layer layer(latent_geometry(DType::kBf16), kTokens, 4, 0.0, 61);
  layer.stand_at(kTokens - 1);
  for (const int threads : {1, 2}) {
    DecodeStep step(bench, layer, threads);
    const auto name = [threads](std::string_view part) {
      return formatted("latent at 131,072, 128 x 576, index 64 x 128, bf16, {} thread{}: {}", threads,
                       threads > 1 ? "s" : "", part);
    };
    bench.add(name("score and select, cold"), step.plan_only(), {step.score_bytes(), step.score_fmas(), 0.0}, threads,
              {}, {1.0 / 0.65, 0.0, ">= 65 % of fma peak"});
    bench.add(name("attend, cold rows"), step.attend_only(true), step.attend_work(), threads, {},
              {1.0 / 0.60, 0.0, ">= 60 % of fma peak"});
    bench.add(name("whole step, cold"), step.whole(),
              {step.score_bytes() + step.attend_bytes(), step.score_fmas() + step.attend_fmas(), 0.0}, threads, {},
              {0.0, 0.0, "stated"});
  }
}

}  // namespace seriatim::bench
