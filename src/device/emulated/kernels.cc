// The kernels' text in its CUDA form, compiled for this process's processor. Built with -D EMULATED=a name of its own,
// and what the kernel source is built with everywhere: WORK_GROUP, KV_DTYPE, INDEX_DTYPE.
#include <bit>
#include <cmath>
#include <utility>

#include "device/emulated/lanes.hpp"
#include "device/emulated/module.hpp"

// The words of CUDA's that the kernel source uses. One work-group runs at a time, so what its lanes share is static.
#define __global__
#define __device__
#define __constant__ static const
#define __shared__ static
#define __launch_bounds__(lanes)
static inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
static inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
static inline long long __double_as_longlong(double a) { return std::bit_cast<long long>(a); }
static inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
static inline unsigned atomicAdd(unsigned* counter, unsigned more) { return std::exchange(*counter, *counter + more); }

// Kernels have C's linkage, so every build of the kernel source gives them names of its own.
#define JOINED(name, variant) name##_##variant
#define JOIN(name, variant) JOINED(name, variant)
#define pool_groups JOIN(pool_groups, EMULATED)
#define score_groups JOIN(score_groups, EMULATED)
#define select_groups JOIN(select_groups, EMULATED)
#define expand_rows JOIN(expand_rows, EMULATED)
#define attend_splits JOIN(attend_splits, EMULATED)
#define fold_splits JOIN(fold_splits, EMULATED)

#include "kernel_text.cl"

namespace seriatim::testing {
namespace {

template <auto kKernel>
struct As;

template <typename... Parameters, void (*kKernel)(Parameters...)>
struct As<kKernel> {
  static void run(void* const* parameters) { spread(parameters, std::index_sequence_for<Parameters...>()); }
  template <std::size_t... kAt>
  static void spread(void* const* parameters, std::index_sequence<kAt...>) {
    kKernel(*static_cast<Parameters*>(parameters[kAt])...);
  }
  static EmulatedKernel named(const char* name) { return {name, {sizeof(Parameters)...}, &run}; }
};

}  // namespace

EmulatedModule JOIN(emulated, EMULATED)();
EmulatedModule JOIN(emulated, EMULATED)() {
  return {WORK_GROUP,
          KV_DTYPE,
          INDEX_DTYPE,
          {As<&pool_groups>::named("pool_groups"), As<&score_groups>::named("score_groups"),
           As<&select_groups>::named("select_groups"), As<&expand_rows>::named("expand_rows"),
           As<&attend_splits>::named("attend_splits"), As<&fold_splits>::named("fold_splits")}};
}

}  // namespace seriatim::testing
