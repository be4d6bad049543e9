// Selection on the device: one work-group per query. The cut is found digit by digit of the ordered bits; every lane
// then emits the winners of its own stretch of groups, at a place that prefix sums give it, so the set comes out
// ascending. The counters of a digit are integers: in whatever order they are counted, they are the same.

// Ascending with the score. Both zeros are one; NaN is 0, below all others.
FN u32 order_of(f32 score) {
  const u32 bits = score == 0.0f ? 0u : BITS_OF(score);
  if (score != score) return 0u;
  return (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
}

KERNEL void select_groups(GLOBAL const f32* scores, GLOBAL const i64* visible, GLOBAL i32* chosen, GLOBAL i32* counts,
                          GLOBAL i32* first_nan, ShapeArgs shape, i64 score_stride, i32 exclude_nan) {
  LOCAL u32 sums[WORK_GROUP];
  LOCAL u32 digits[256];
  LOCAL u32 found[2];
  const i64 query = GROUP(0);
  const i64 groups = visible[query] / shape.group_tokens;
  const bool scored = needs_scores(groups, shape.budget_groups, exclude_nan);
  const i64 limit = scored ? groups : 0;
  GLOBAL const f32* own = scores + query * score_stride;
  GLOBAL i32* out = chosen + query * shape.budget_groups;

  if (!scored) {
    for (i64 g = LANE; g < groups; g += WORK_GROUP) out[g] = (i32)g;
  }

  const i64 stretch = (limit + WORK_GROUP - 1) / WORK_GROUP;
  const i64 begin = LANE * stretch < limit ? LANE * stretch : limit;
  const i64 end = begin + stretch < limit ? begin + stretch : limit;

  u32 nans = 0u;
  i32 nan_group = -1;
  for (i64 g = begin; g < end; ++g) {
    const f32 score = own[g];
    if (score != score) {
      nan_group = nans == 0u ? (i32)g : nan_group;
      ++nans;
    }
  }
  u32 all_nans = 0u;
  const u32 nans_before = sum_before(sums, nans, &all_nans);
  if (LANE == 0 && all_nans == 0u) first_nan[query] = -1;
  if (nans > 0u && nans_before == 0u) first_nan[query] = nan_group;

  const i64 candidates = limit - (i64)all_nans;
  u32 left = (u32)(candidates < shape.budget_groups ? candidates : shape.budget_groups);
  const u32 kept = left;
  u32 cut = 0u;
  u32 known = 0u;
  for (i32 shift = 24; shift >= 0; shift -= 8) {
    for (i64 d = LANE; d < 256; d += WORK_GROUP) digits[d] = 0u;
    BARRIER;
    for (i64 g = LANE; g < limit; g += WORK_GROUP) {
      const u32 order = order_of(own[g]);
      if ((order & known) == cut) COUNT_ONE(&digits[(order >> shift) & 255u]);
    }
    BARRIER;
    if (LANE == 0) {
      u32 digit = 255u;
      u32 rest = left;
      while (digit > 0u && digits[digit] < rest) rest -= digits[digit--];
      found[0] = digit;
      found[1] = rest;
    }
    BARRIER;
    cut |= found[0] << shift;
    known |= 255u << shift;
    left = found[1];
    BARRIER;
  }

  // Of those at the cut the first `left` win.
  u32 above = 0u;
  u32 equal = 0u;
  for (i64 g = begin; g < end; ++g) {
    const u32 order = order_of(own[g]);
    above += order > cut ? 1u : 0u;
    equal += order == cut ? 1u : 0u;
  }
  u32 total = 0u;
  u32 place = sum_before(sums, above, &total);
  u32 equal_before = sum_before(sums, equal, &total);
  place += equal_before < left ? equal_before : left;
  for (i64 g = begin; g < end; ++g) {
    const u32 order = order_of(own[g]);
    const bool tie_wins = order == cut && equal_before < left;
    equal_before += order == cut ? 1u : 0u;
    if (order > cut || tie_wins) out[place++] = (i32)g;
  }
  if (LANE == 0) counts[query] = scored ? (i32)kept : (i32)groups;
}
