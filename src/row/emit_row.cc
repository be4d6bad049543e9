#include "row/emit_row.hpp"

#include <algorithm>

#include "seriatim/row.hpp"

namespace seriatim {
namespace {

// kTokens 0: any number. A number that the compiler knows makes a group one store.
template <std::int64_t kTokens>
std::int32_t* emit_groups(std::span<const std::int32_t> groups, std::int64_t group_tokens, std::int32_t anchor,
                          std::int32_t* out) {
  const auto tokens = static_cast<std::int32_t>(kTokens == 0 ? group_tokens : kTokens);
  for (const std::int32_t group : groups) {
    const std::int32_t first = anchor + group * tokens;
    for (std::int32_t t = 0; t < tokens; ++t) out[t] = first + t;
    out += tokens;
  }
  return out;
}

std::int32_t* emit_run(std::int64_t first, std::int64_t tokens, std::int32_t* out) {
  for (std::int64_t t = 0; t < tokens; ++t) out[t] = static_cast<std::int32_t>(first + t);
  return out + tokens;
}

std::int64_t pad(std::span<std::int32_t> row, const std::int32_t* end) {
  const std::int64_t count = end - row.data();
  std::fill(row.begin() + count, row.end(), kRowPadding);
  return count;
}

}  // namespace

std::int64_t emit_row(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> groups,
                      std::span<std::int32_t> row) {
  const std::int64_t r = geometry.group_tokens();
  const auto anchor = static_cast<std::int32_t>(run.anchor);
  std::int32_t* out = row.data();
  // The newest group may have less than r tokens.
  const std::int64_t missing = geometry.missing_tokens(run.tokens);
  const std::int64_t newest = geometry.groups(run.tokens) - 1;
  const bool partial = missing > 0 && !groups.empty() && groups.back() == newest;
  if (partial) groups = groups.first(groups.size() - 1);
  switch (r) {
    case 1:
      out = emit_groups<1>(groups, r, anchor, out);
      break;
    case 4:
      out = emit_groups<4>(groups, r, anchor, out);
      break;
    default:
      out = emit_groups<0>(groups, r, anchor, out);
      break;
  }
  if (partial) out = emit_run(run.anchor + newest * r, r - missing, out);
  const std::int64_t tail = geometry.tail_tokens(run.tokens);
  return pad(row, emit_run(run.anchor + run.tokens - tail, tail, out));
}

std::int64_t emit_dense_row(VisibleRun run, std::span<std::int32_t> row) {
  return pad(row, emit_run(run.anchor, run.tokens, row.data()));
}

}  // namespace seriatim
