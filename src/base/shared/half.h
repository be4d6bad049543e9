// bf16 and f16 as storage: bits to f32 and back, by integer steps and exact products only, so every machine rounds
// alike. One text for the host's compiler and the devices' (see host_words.h).
//
// f32 -> half rounds to nearest, ties to even, once; subnormals are kept, overflow gives infinity, a NaN stays a quiet
// NaN with its sign and its leading payload bits. half -> f32 is exact, except that signalling NaNs become quiet.
// Source: contract section 5; IEEE 754-2019, 5.4.2.

FN f32 from_bf16(u16 half_bits) {
  const u32 wide = (u32)half_bits << 16;
  return FLOAT_OF((wide & 0x7fffffffu) > 0x7f800000u ? wide | 0x00400000u : wide);
}

FN u16 to_bf16(f32 value) {
  const u32 bits = BITS_OF(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits | 0x00400000u) >> 16);
  // Half of the last kept place, less one where that place is even: ties go to even; the carry reaches the exponent.
  return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

FN f32 from_f16(u16 half_bits) {
  const u32 sign = ((u32)half_bits & 0x8000u) << 16;
  const u32 exponent = ((u32)half_bits >> 10) & 0x1fu;
  const u32 fraction = (u32)half_bits & 0x3ffu;
  if (exponent == 0x1fu) return FLOAT_OF(sign | 0x7f800000u | (fraction == 0u ? 0u : 0x00400000u) | (fraction << 13));
  if (exponent != 0u) return FLOAT_OF(sign | ((exponent + 112u) << 23) | (fraction << 13));
  return FLOAT_OF(sign | BITS_OF((f32)fraction * 0x1p-24f));  // subnormal or zero: exact, and never a subnormal f32
}

FN u16 to_f16(f32 value) {
  const u32 bits = BITS_OF(value);
  const u32 sign = (bits & 0x80000000u) >> 16;
  const u32 magnitude = bits & 0x7fffffffu;
  u32 narrow = 0u;
  if (magnitude > 0x7f800000u) {
    narrow = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520, the midpoint past the largest f16: its tie goes to infinity
    narrow = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal f16
    narrow = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else if (magnitude > 0x33000000u) {  // above 2^-25, half of the smallest subnormal, which is itself a tie with zero
    const u32 significand = (magnitude & 0x007fffffu) | 0x00800000u;
    const u32 shift = 126u - (magnitude >> 23);  // 14..24 bits fall off
    const u32 kept = significand >> shift;
    narrow = (significand + ((1u << (shift - 1u)) - 1u) + (kept & 1u)) >> shift;
  }
  return (u16)(sign | narrow);
}
