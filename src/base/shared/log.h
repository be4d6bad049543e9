// log32: natural logarithm in f32 by fma, add, multiply and integer steps only, so that any vector lane and any device
// can repeat it bit for bit. One text for the host's compiler and the devices' (see host_words.h).
//
// Source: contract section 5; x = 2^k * (1 + f), a minimax polynomial in f (tools/make_math_tables.py).

#define LOG_LN2_HI 0x1.62e430p-1f
#define LOG_LN2_LO -0x1.05c610p-29f
// log(1 + f) = f - f^2 / 2 + f^3 * (c0 + c1 f + ...) for 1 + f in [sqrt(1/2), sqrt(2)].
#define LOG_C0 0x1.555554p-2f
#define LOG_C1 -0x1.000228p-2f
#define LOG_C2 0x1.99a012p-3f
#define LOG_C3 -0x1.5471f6p-3f
#define LOG_C4 0x1.22d90ap-3f
#define LOG_C5 -0x1.0d875ap-3f
#define LOG_C6 0x1.056498p-3f
#define LOG_C7 -0x1.38c1aap-4f
#define LOG_SQRT_HALF_BITS 0x3f3504f3u

// Takes   any f32.
// Gives   the logarithm within 0.873 ulp (measured over every f32), subnormal x included, and never decreasing;
//         exactly +0 at 1; -inf at +-0; +inf at +inf; for x < 0 and for a NaN the one quiet NaN 0x7fc00000.
FN f32 log32(f32 x) {
  const bool small = x < 0x1p-126f;
  const f32 normal = small ? x * 0x1p+23f : x;
  const u32 bits = BITS_OF(normal);
  const i32 exponent = (i32)(bits - LOG_SQRT_HALF_BITS) >> 23;
  const f32 m = FLOAT_OF(bits - ((u32)exponent << 23));
  const f32 k = (f32)(exponent - (small ? 23 : 0));
  const f32 f = m - 1.0f;
  f32 p = LOG_C7;
  p = FMA32(p, f, LOG_C6);
  p = FMA32(p, f, LOG_C5);
  p = FMA32(p, f, LOG_C4);
  p = FMA32(p, f, LOG_C3);
  p = FMA32(p, f, LOG_C2);
  p = FMA32(p, f, LOG_C1);
  p = FMA32(p, f, LOG_C0);
  p = FMA32(p, f, -0.5f);
  // k ln 2 + f + f^2 p, the smallest part first.
  const f32 tail = FMA32(f * f, p, k * LOG_LN2_LO);
  f32 result = FMA32(k, LOG_LN2_HI, f + tail);
  result = x == 0.0f ? -FLOAT_OF(0x7f800000u) : result;
  result = x > 0x1.fffffep+127f ? x : result;
  return x >= 0.0f ? result : FLOAT_OF(0x7fc00000u);
}
