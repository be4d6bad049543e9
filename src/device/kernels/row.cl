// Rows on the device: a lane writes one entry of one row.

KERNEL void expand_rows(GLOBAL const i32* chosen, GLOBAL const i32* counts, GLOBAL const i64* visible, GLOBAL i32* rows,
                        GLOBAL i32* widths, LayerArgs layer, ShapeArgs shape) {
  const i64 entry = GROUP(0) * WORK_GROUP + LANE;
  const i64 query = GROUP(1);
  const i64 r = shape.group_tokens;
  const i64 grouped = counts[query] * r;
  const i64 width = grouped + visible[query] % r;
  if (entry == 0) widths[query] = (i32)width;
  if (entry >= shape.row_capacity) return;
  i64 position = -1;
  if (entry < grouped) {
    position = layer.anchor + chosen[query * shape.budget_groups + entry / r] * r + entry % r;
  } else if (entry < width) {
    position = layer.anchor + visible[query] / r * r + (entry - grouped);
  }
  rows[query * shape.row_capacity + entry] = (i32)position;
}
