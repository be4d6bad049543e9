// sincos32: correctly rounded sine and cosine of an f32 angle, by +, - and * of doubles and integer steps only. One
// text for the host's compiler and the devices' (see host_words.h).
//
// The angle is reduced with the leading bits of 2/pi in integers, so every finite f32 is reduced alike and nothing
// depends on libm or on a fused multiply-add. The series are carried in TwoDouble to some 2^-66 of the result. Compared
// once with a 64-bit significand for every positive finite f32: none differs, and no result lies nearer than 2^-58 of
// itself to a midpoint between two f32, so neither side of that comparison can have erred.
// Source: contract section 3; Payne and Hanek 1983, "Radian reduction for trigonometric functions"; Taylor's series.

// 2/pi after 32 leading zero bits, 32 bits a word.
TABLE u32 kTwoOverPi[9] = {0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                           0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u};
TABLE TwoDouble kHalfPi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

// sin r = r + r z (s0 + z (s1 + z S(z))) and cos r = 1 + z (c0 + z (c1 + z C(z))), z = r^2: 1/n! with its sign.
TABLE TwoDouble kSinLead[2] = {{-0x1.5555555555555p-3, -0x1.5555555555555p-57},
                               {0x1.1111111111111p-7, 0x1.1111111111111p-63}};
TABLE f64 kSinTail[7] = {-0x1.a01a01a01a01ap-13, 0x1.71de3a556c734p-19, -0x1.ae64567f544e4p-26, 0x1.6124613a86d09p-33,
                         -0x1.ae7f3e733b81fp-41, 0x1.952c77030ad4ap-49, -0x1.2f49b46814157p-57};
TABLE TwoDouble kCosLead[2] = {{-0.5, 0.0}, {0x1.5555555555555p-5, 0x1.5555555555555p-59}};
TABLE f64 kCosTail[7] = {-0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-16, -0x1.27e4fb7789f5cp-22, 0x1.1eed8eff8d898p-29,
                         -0x1.93974a8c07c9dp-37, 0x1.ae7f3e733b81fp-45, -0x1.6827863b97d97p-53};

// Takes   the magnitude bits of a finite f32 angle of at least 1/2
// Gives   the angle as quadrant * pi/2 + rest, |rest| <= pi/4; quadrant 0..3, whole turns dropped.
FN TwoDouble reduce_angle(u32 angle_bits, u32* quadrant_of) {
  const u64 significand = (angle_bits & 0x007fffffu) | 0x00800000u;
  // The angle is significand * 2^exponent. Bits of 2/pi above weight 2^(1 - exponent) give whole turns only; below them
  // 128 bits are kept, so that significand * window is the angle in quadrants, with 126 bits of fraction, modulo 4.
  const u32 first_bit = (angle_bits >> 23) - 120u;
  const u32 first_word = first_bit / 32u;
  const u32 shift = first_bit % 32u;
  u32 quadrants[4];
  u64 carry = 0ul;
  for (u32 word = 4u; word-- > 0u;) {
    const u64 pair = ((u64)kTwoOverPi[first_word + word] << 32) | (u64)kTwoOverPi[first_word + word + 1u];
    carry += significand * ((pair << shift) >> 32);
    quadrants[word] = (u32)carry;
    carry >>= 32;
  }
  // The nearest quadrant, and the signed fraction that is left in the 128 bits below it.
  const bool negative = (quadrants[0] & 0x20000000u) != 0u;
  *quadrant_of = ((quadrants[0] >> 30) + (negative ? 1u : 0u)) & 3u;
  const u32 flip = negative ? 0xffffffffu : 0u;
  f64 weight = 0x1p-128;
  f64 parts[4];
  for (u32 word = 4u; word-- > 0u;) {
    const u32 below = word < 3u ? quadrants[word + 1u] >> 30 : 0u;
    parts[word] = (f64)(((quadrants[word] << 2) | below) ^ flip) * weight;
    weight *= 0x1p+32;
  }
  // Flipping the bits negates up to 2^-128, which is far below the truncation of 2/pi.
  const TwoDouble top = fast_two_sum(parts[0], parts[1]);
  const TwoDouble fraction = fast_two_sum(top.hi, top.lo + (parts[2] + parts[3]));
  const TwoDouble rest = two_times(fraction, kHalfPi);
  return negative ? two_negative(rest) : rest;
}

// z (lead0 + z (lead1 + z sum)).
FN TwoDouble even_series(TwoDouble z, TwoDouble lead0, TwoDouble lead1, f64 sum) {
  return two_times(z, two_add(lead0, two_times(z, two_add(lead1, two_product(z.hi, sum)))));
}

// Takes   any f32, in radians
// Gives   sine, and cosine behind the pointer, correctly rounded (nearest, ties to even) for every finite angle;
//         sin(-0) is -0; NaN for an infinity or a NaN.
FN f32 sincos32_of(f32 angle, f32* cosine_of) {
  const u32 bits = BITS_OF(angle);
  const u32 magnitude = bits & 0x7fffffffu;
  *cosine_of = FLOAT_OF(0x7fc00000u);
  if (magnitude >= 0x7f800000u) return FLOAT_OF(0x7fc00000u);
  u32 quadrant = 0u;
  TwoDouble r = two((f64)FLOAT_OF(magnitude), 0.0);
  if (magnitude >= 0x3f000000u) r = reduce_angle(magnitude, &quadrant);
  const TwoDouble z = two_times(r, r);
  f64 sin_sum = kSinTail[6];
  f64 cos_sum = kCosTail[6];
  for (u32 i = 6u; i-- > 0u;) {
    sin_sum = sin_sum * z.hi + kSinTail[i];
    cos_sum = cos_sum * z.hi + kCosTail[i];
  }
  const TwoDouble sin_part = even_series(z, kSinLead[0], kSinLead[1], sin_sum);
  const TwoDouble cos_part = even_series(z, kCosLead[0], kCosLead[1], cos_sum);
  f32 sine = round_to_f32(two_add(r, two_times(r, sin_part)));
  f32 cosine = round_to_f32(two_add(two(1.0, 0.0), cos_part));
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
