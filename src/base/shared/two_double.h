// TwoDouble: an unevaluated sum of two doubles, some 100 bits, for what must come out correctly rounded to f32. One
// text for the host's compiler and the devices' (see host_words.h).
//
// Only +, - and * of doubles, so the bits are the same on every machine. Needs contraction off. The error bounds are
// the usual ones of a few units of 2^-104. Magnitudes must stay within 2^-400..2^400.
// Source: Dekker 1971, "A floating-point technique for extending the available precision"; Knuth, TAOCP 2, 4.2.2.

typedef struct TwoDouble {
  f64 hi;
  f64 lo;  // at most half a unit in the last place of hi
} TwoDouble;

FN TwoDouble two(f64 hi, f64 lo) {
  TwoDouble t;
  t.hi = hi;
  t.lo = lo;
  return t;
}

// a + b exactly.
FN TwoDouble two_sum(f64 a, f64 b) {
  const f64 sum = a + b;
  const f64 shadow = sum - a;
  return two(sum, (a - (sum - shadow)) + (b - shadow));
}

// a + b exactly, for |a| >= |b| or a == 0.
FN TwoDouble fast_two_sum(f64 a, f64 b) {
  const f64 sum = a + b;
  return two(sum, b - (sum - a));
}

// a * b exactly: the factors are split into halves of 26 bits.
FN TwoDouble two_product(f64 a, f64 b) {
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

FN TwoDouble two_negative(TwoDouble a) { return two(-a.hi, -a.lo); }

FN TwoDouble two_add(TwoDouble a, TwoDouble b) {
  const TwoDouble high = two_sum(a.hi, b.hi);
  const TwoDouble low = two_sum(a.lo, b.lo);
  const TwoDouble sum = fast_two_sum(high.hi, high.lo + low.hi);
  return fast_two_sum(sum.hi, sum.lo + low.lo);
}

FN TwoDouble two_times(TwoDouble a, TwoDouble b) {
  const TwoDouble product = two_product(a.hi, b.hi);
  return fast_two_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

// The exact sum sum.hi + sum.lo, where sum.hi is the rounded sum, rounded once to f32, as IEEE 754 rounds.
FN f32 round_to_f32(TwoDouble sum) {
  f64 odd = sum.hi;
  const u64 bits = BITS_OF_DOUBLE(odd);
  const bool finite = (bits & 0x7ff0000000000000ul) != 0x7ff0000000000000ul;
  if (finite && sum.lo != 0.0 && (bits & 1ul) == 0ul) {
    // Round to odd: step the even result towards the lost part, which lands on the odd neighbour. The double then
    // lies on the true side of every f32 and of every midpoint between two.
    const bool away = (sum.lo > 0.0) == (odd > 0.0);
    odd = DOUBLE_OF(away ? bits + 1ul : bits - 1ul);
  }
  return (f32)odd;
}
