// The library's own exp, log, sine, cosine and conversions, line for line as in src/base.

#define F32 0
#define BF16 1
#define F16 2

FN f32 widen_bf16(u16 half_bits) {
  const u32 wide = (u32)half_bits << 16;
  return FLOAT_OF((wide & 0x7fffffffu) > INFINITY_BITS ? wide | 0x00400000u : wide);
}

FN u16 narrow_bf16(f32 value) {
  const u32 bits = BITS_OF(value);
  if ((bits & 0x7fffffffu) > INFINITY_BITS) return (u16)((bits | 0x00400000u) >> 16);
  return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

FN f32 widen_f16(u16 half_bits) {
  const u32 sign = ((u32)half_bits & 0x8000u) << 16;
  const u32 exponent = ((u32)half_bits >> 10) & 0x1fu;
  const u32 fraction = (u32)half_bits & 0x3ffu;
  if (exponent == 0x1fu) return FLOAT_OF(sign | INFINITY_BITS | (fraction == 0u ? 0u : 0x00400000u) | (fraction << 13));
  if (exponent != 0u) return FLOAT_OF(sign | ((exponent + 112u) << 23) | (fraction << 13));
  return FLOAT_OF(sign | BITS_OF((f32)fraction * 0x1p-24f));  // exact
}

FN u16 narrow_f16(f32 value) {
  const u32 bits = BITS_OF(value);
  const u32 sign = (bits & 0x80000000u) >> 16;
  const u32 magnitude = bits & 0x7fffffffu;
  u32 narrow = 0u;
  if (magnitude > INFINITY_BITS) {
    narrow = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {
    narrow = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {
    narrow = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else if (magnitude > 0x33000000u) {
    const u32 significand = (magnitude & 0x007fffffu) | 0x00800000u;
    const u32 shift = 126u - (magnitude >> 23);
    const u32 kept = significand >> shift;
    narrow = (significand + ((1u << (shift - 1u)) - 1u) + (kept & 1u)) >> shift;
  }
  return (u16)(sign | narrow);
}

FN i64 bytes_of(i32 dtype) { return dtype == F32 ? 4 : 2; }

FN f32 load_as(i32 dtype, GLOBAL const u8* at) {
  if (dtype == F32) return *(GLOBAL const f32*)at;
  return dtype == BF16 ? widen_bf16(*(GLOBAL const u16*)at) : widen_f16(*(GLOBAL const u16*)at);
}

FN void store_as(i32 dtype, GLOBAL u8* at, f32 value) {
  if (dtype == F32) {
    *(GLOBAL f32*)at = value;
  } else {
    *(GLOBAL u16*)at = dtype == BF16 ? narrow_bf16(value) : narrow_f16(value);
  }
}

FN f32 round_as(i32 dtype, f32 value) {
  if (dtype == F32) return value;
  return dtype == BF16 ? widen_bf16(narrow_bf16(value)) : widen_f16(narrow_f16(value));
}

FN f32 exp32(f32 x) {
  const f32 shifted = FMA32(x, 0x1.715476p+0f, 0x1.8p+23f);
  const f32 n = shifted - 0x1.8p+23f;
  f32 r = FMA32(n, -0x1.62e430p-1f, x);
  r = FMA32(n, 0x1.05c610p-29f, r);
  f32 p = 0x1.6a2434p-10f;
  p = FMA32(p, r, 0x1.1239e2p-7f);
  p = FMA32(p, r, 0x1.5558f2p-5f);
  p = FMA32(p, r, 0x1.555492p-3f);
  p = FMA32(p, r, 0x1.fffffcp-2f);
  p = FMA32(p, r, 1.0f);
  p = FMA32(p, r, 1.0f);
  f32 result = FLOAT_OF(BITS_OF(p) + (BITS_OF(shifted) << 23));
  result = x < -0x1.5d589ep+6f ? 0.0f : result;
  result = x > 0x1.62e42ep+6f ? FLOAT_OF(INFINITY_BITS) : result;
  return x == x ? result : QUIET_NAN;
}

FN f32 log32(f32 x) {
  const bool small = x < 0x1p-126f;
  const f32 normal = small ? x * 0x1p+23f : x;
  const u32 bits = BITS_OF(normal);
  const i32 exponent = (i32)(bits - 0x3f3504f3u) >> 23;
  const f32 m = FLOAT_OF(bits - ((u32)exponent << 23));
  const f32 k = (f32)(exponent - (small ? 23 : 0));
  const f32 f = m - 1.0f;
  f32 p = -0x1.38c1aap-4f;
  p = FMA32(p, f, 0x1.056498p-3f);
  p = FMA32(p, f, -0x1.0d875ap-3f);
  p = FMA32(p, f, 0x1.22d90ap-3f);
  p = FMA32(p, f, -0x1.5471f6p-3f);
  p = FMA32(p, f, 0x1.99a012p-3f);
  p = FMA32(p, f, -0x1.000228p-2f);
  p = FMA32(p, f, 0x1.555554p-2f);
  p = FMA32(p, f, -0.5f);
  const f32 tail = FMA32(f * f, p, k * -0x1.05c610p-29f);
  f32 result = FMA32(k, 0x1.62e430p-1f, f + tail);
  result = x == 0.0f ? -FLOAT_OF(INFINITY_BITS) : result;
  result = x > 0x1.fffffep+127f ? x : result;
  return x >= 0.0f ? result : QUIET_NAN;
}

typedef struct Two {
  f64 hi;
  f64 lo;
} Two;

FN Two two(f64 hi, f64 lo) {
  Two t;
  t.hi = hi;
  t.lo = lo;
  return t;
}

FN Two two_sum(f64 a, f64 b) {
  const f64 sum = a + b;
  const f64 shadow = sum - a;
  return two(sum, (a - (sum - shadow)) + (b - shadow));
}

FN Two fast_two_sum(f64 a, f64 b) {
  const f64 sum = a + b;
  return two(sum, b - (sum - a));
}

FN Two two_product(f64 a, f64 b) {
  const f64 split = 0x1p+27 + 1.0;
  const f64 a_wide = a * split;
  const f64 a_high = a_wide - (a_wide - a);
  const f64 a_low = a - a_high;
  const f64 b_wide = b * split;
  const f64 b_high = b_wide - (b_wide - b);
  const f64 b_low = b - b_high;
  const f64 product = a * b;
  return two(product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low);
}

FN Two two_add(Two a, Two b) {
  const Two high = two_sum(a.hi, b.hi);
  const Two low = two_sum(a.lo, b.lo);
  const Two sum = fast_two_sum(high.hi, high.lo + low.hi);
  return fast_two_sum(sum.hi, sum.lo + low.lo);
}

FN Two two_times(Two a, Two b) {
  const Two product = two_product(a.hi, b.hi);
  return fast_two_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

FN f32 round_two(Two sum) {
  f64 odd = sum.hi;
  const u64 bits = BITS_OF_DOUBLE(odd);
  const bool finite = (bits & 0x7ff0000000000000ul) != 0x7ff0000000000000ul;
  if (finite && sum.lo != 0.0 && (bits & 1ul) == 0ul) {
    const bool away = (sum.lo > 0.0) == (odd > 0.0);
    odd = DOUBLE_OF(away ? bits + 1ul : bits - 1ul);
  }
  return (f32)odd;
}

TABLE u32 kTwoOverPi[9] = {0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                           0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u};
TABLE f64 kSinTail[7] = {-0x1.a01a01a01a01ap-13, 0x1.71de3a556c734p-19, -0x1.ae64567f544e4p-26, 0x1.6124613a86d09p-33,
                         -0x1.ae7f3e733b81fp-41, 0x1.952c77030ad4ap-49, -0x1.2f49b46814157p-57};
TABLE f64 kCosTail[7] = {-0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-16, -0x1.27e4fb7789f5cp-22, 0x1.1eed8eff8d898p-29,
                         -0x1.93974a8c07c9dp-37, 0x1.ae7f3e733b81fp-45, -0x1.6827863b97d97p-53};

// An angle of at least 1/2 as quadrant * pi/2 + rest.
FN Two reduce_angle(u32 angle_bits, u32* quadrant_of) {
  const u64 significand = (angle_bits & 0x007fffffu) | 0x00800000u;
  const u32 first_bit = (angle_bits >> 23) - 120u;
  const u32 first_word = first_bit / 32u;
  const u32 shift = first_bit % 32u;
  u32 quadrants[4];
  u64 carry = 0ul;
  for (i32 word = 3; word >= 0; --word) {
    const u64 pair = ((u64)kTwoOverPi[first_word + word] << 32) | (u64)kTwoOverPi[first_word + word + 1];
    carry += significand * ((pair << shift) >> 32);
    quadrants[word] = (u32)carry;
    carry >>= 32;
  }
  const bool negative = (quadrants[0] & 0x20000000u) != 0u;
  *quadrant_of = ((quadrants[0] >> 30) + (negative ? 1u : 0u)) & 3u;
  const u32 flip = negative ? 0xffffffffu : 0u;
  f64 weight = 0x1p-128;
  f64 parts[4];
  for (i32 word = 3; word >= 0; --word) {
    const u32 below = word < 3 ? quadrants[word + 1] >> 30 : 0u;
    parts[word] = (f64)(((quadrants[word] << 2) | below) ^ flip) * weight;
    weight *= 0x1p+32;
  }
  const Two top = fast_two_sum(parts[0], parts[1]);
  const Two fraction = fast_two_sum(top.hi, top.lo + (parts[2] + parts[3]));
  const Two rest = two_times(fraction, two(0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54));
  return negative ? two(-rest.hi, -rest.lo) : rest;
}

FN Two even_series(Two z, Two lead0, Two lead1, f64 sum) {
  return two_times(z, two_add(lead0, two_times(z, two_add(lead1, two_product(z.hi, sum)))));
}

FN f32 sincos32(f32 angle, f32* cosine_of) {
  const u32 bits = BITS_OF(angle);
  const u32 magnitude = bits & 0x7fffffffu;
  *cosine_of = QUIET_NAN;
  if (magnitude >= INFINITY_BITS) return QUIET_NAN;
  u32 quadrant = 0u;
  Two r = two((f64)FLOAT_OF(magnitude), 0.0);
  if (magnitude >= 0x3f000000u) r = reduce_angle(magnitude, &quadrant);
  const Two z = two_times(r, r);
  f64 sin_sum = kSinTail[6];
  f64 cos_sum = kCosTail[6];
  for (i32 i = 5; i >= 0; --i) {
    sin_sum = sin_sum * z.hi + kSinTail[i];
    cos_sum = cos_sum * z.hi + kCosTail[i];
  }
  const Two sin_part = even_series(z, two(-0x1.5555555555555p-3, -0x1.5555555555555p-57),
                                   two(0x1.1111111111111p-7, 0x1.1111111111111p-63), sin_sum);
  const Two cos_part = even_series(z, two(-0.5, 0.0), two(0x1.5555555555555p-5, 0x1.5555555555555p-59), cos_sum);
  f32 sine = round_two(two_add(r, two_times(r, sin_part)));
  f32 cosine = round_two(two_add(two(1.0, 0.0), cos_part));
  if ((quadrant & 1u) != 0u) {
    const f32 turned = -sine;
    sine = cosine;
    cosine = turned;
  }
  if ((quadrant & 2u) != 0u) {
    sine = -sine;
    cosine = -cosine;
  }
  *cosine_of = cosine;
  return (bits >> 31) != 0u ? -sine : sine;
}
