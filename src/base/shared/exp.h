// exp32: e^x in f32 by fma, add, multiply and integer steps only, so that any vector lane and any device
// can repeat it bit for bit. One text for the host's compiler and the devices' (see host_words.h).
//
// Source: contract section 5; Cody and Waite's range reduction, a minimax polynomial (tools/make_math_tables.py).

#define EXP_LOG2E 0x1.715476p+0f
// 1.5 * 2^23: adding it leaves an integer, rounded to nearest even, in the low bits of the sum.
#define EXP_SHIFT 0x1.8p+23f
// -ln 2 in two parts. The product with an integer below 2^8 is added exactly by fma: see the multiple of 2^-21 in the
// first part.
#define EXP_NEG_LN2_HI -0x1.62e430p-1f
#define EXP_NEG_LN2_LO 0x1.05c610p-29f
// e^r = 1 + r + r^2 * (c0 + c1 r + ...) for |r| <= ln(2) / 2.
#define EXP_C0 0x1.fffffcp-2f
#define EXP_C1 0x1.555492p-3f
#define EXP_C2 0x1.5558f2p-5f
#define EXP_C3 0x1.1239e2p-7f
#define EXP_C4 0x1.6a2434p-10f
// The least f32 whose e^x is a normal f32, and the greatest whose e^x is finite.
#define EXP_LOWEST -0x1.5d589ep+6f
#define EXP_HIGHEST 0x1.62e42ep+6f

// Takes   any f32.
// Gives   e^x within 0.895 ulp (measured over every f32); exactly 1 at +-0; exactly 0 below EXP_LOWEST, so never a
//         subnormal; +inf above EXP_HIGHEST; for a NaN the one quiet NaN 0x7fc00000.
// A vector version runs these lines in the same order on lanes, from `shifted` down to the selects.
FN f32 exp32(f32 x) {
  const f32 shifted = FMA32(x, EXP_LOG2E, EXP_SHIFT);
  const f32 n = shifted - EXP_SHIFT;
  f32 r = FMA32(n, EXP_NEG_LN2_HI, x);
  r = FMA32(n, EXP_NEG_LN2_LO, r);
  f32 p = EXP_C4;
  p = FMA32(p, r, EXP_C3);
  p = FMA32(p, r, EXP_C2);
  p = FMA32(p, r, EXP_C1);
  p = FMA32(p, r, EXP_C0);
  p = FMA32(p, r, 1.0f);
  p = FMA32(p, r, 1.0f);
  // Times 2^n: the low bits of `shifted` are n, and the shift drops all the others.
  f32 result = FLOAT_OF(BITS_OF(p) + (BITS_OF(shifted) << 23));
  result = x < EXP_LOWEST ? 0.0f : result;
  result = x > EXP_HIGHEST ? FLOAT_OF(0x7f800000u) : result;
  return x == x ? result : FLOAT_OF(0x7fc00000u);
}
