// One text for OpenCL C 1.2 and CUDA C++: the words in which the two differ, and nothing else.
//
// Built with -D WORK_GROUP=n, KV_DTYPE and INDEX_DTYPE (numbered as seriatim::DType). No fast-math option is ever
// given; contraction is off (CUDA: -fmad=false besides), and a fused multiply-add stands only where FMA32 is written.
#ifdef __OPENCL_VERSION__
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
typedef long i64;
typedef ulong u64;
typedef int i32;
typedef uint u32;
typedef ushort u16;
typedef uchar u8;
typedef float f32;
typedef double f64;
#define KERNEL __kernel __attribute__((reqd_work_group_size(WORK_GROUP, 1, 1)))
#define FN static inline
#define GLOBAL __global
#define TABLE __constant
#define LOCAL __local
#define LOCAL_ARG __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define LANE ((i64)get_local_id(0))
#define GROUP(axis) ((i64)get_group_id(axis))
#define COUNT_ONE(counter) atomic_inc(counter)
#define FMA32(a, b, c) fma(a, b, c)
#define DIV32(a, b) ((a) / (b))
#define SQRT32(a) sqrt(a)
#define BITS_OF(x) as_uint(x)
#define FLOAT_OF(x) as_float(x)
#define BITS_OF_DOUBLE(x) as_ulong(x)
#define DOUBLE_OF(x) as_double(x)
#else
typedef long long i64;
typedef unsigned long long u64;
typedef int i32;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef float f32;
typedef double f64;
#define KERNEL extern "C" __global__ __launch_bounds__(WORK_GROUP)
#define FN static __device__ inline
#define GLOBAL
#define TABLE __constant__
#define LOCAL __shared__
#define LOCAL_ARG
#define BARRIER __syncthreads()
#define LANE ((i64)threadIdx.x)
#define GROUP(axis) ((i64)((axis) == 0 ? blockIdx.x : (axis) == 1 ? blockIdx.y : blockIdx.z))
#define COUNT_ONE(counter) atomicAdd(counter, 1u)
#define FMA32(a, b, c) __fmaf_rn(a, b, c)
#define DIV32(a, b) __fdiv_rn(a, b)
#define SQRT32(a) __fsqrt_rn(a)
#define BITS_OF(x) __float_as_uint(x)
#define FLOAT_OF(x) __uint_as_float(x)
#define BITS_OF_DOUBLE(x) ((u64)__double_as_longlong(x))
#define DOUBLE_OF(x) __longlong_as_double((i64)(x))
#endif

#define QUIET_NAN FLOAT_OF(0x7fc00000u)
#define INFINITY_BITS 0x7f800000u

FN bool is_finite(f32 x) { return (BITS_OF(x) & INFINITY_BITS) != INFINITY_BITS; }

// The sum of `value` over the lanes before this one, and over all in *total. Integers: any order gives the same.
FN u32 sum_before(LOCAL_ARG u32* sums, u32 value, u32* total) {
  const i64 lane = LANE;
  sums[lane] = value;
  BARRIER;
  for (i64 step = 1; step < WORK_GROUP; step <<= 1) {
    const u32 add = lane >= step ? sums[lane - step] : 0u;
    BARRIER;
    sums[lane] += add;
    BARRIER;
  }
  const u32 through = sums[lane];
  *total = sums[WORK_GROUP - 1];
  BARRIER;
  return through - value;
}
