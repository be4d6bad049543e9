#include "agreement/flips.hpp"

#include <cstring>

#include "base/format.hpp"

namespace seriatim::agreement {
namespace {

enum class Input { kIndexKeys, kIndexQueries, kKeys, kValues, kQueries };

enum class Bit { kFraction, kSign, kExponent };  // the highest of its kind

struct Flip {
  Input input;
  std::int64_t element;
  Bit bit;
};

HostTensor& tensor_of(Problem& p, Input input) {
  switch (input) {
    case Input::kIndexKeys:
      return p.index_keys;
    case Input::kIndexQueries:
      return p.index_queries;
    case Input::kKeys:
      return p.keys;
    case Input::kValues:
      return p.values;
    case Input::kQueries:
      break;
  }
  return p.queries;
}

const char* name_of(Input input) {
  switch (input) {
    case Input::kIndexKeys:
      return "index_keys";
    case Input::kIndexQueries:
      return "index_queries";
    case Input::kKeys:
      return "keys";
    case Input::kValues:
      return "values";
    case Input::kQueries:
      break;
  }
  return "queries";
}

// The number of the bit within its element.
int bit_of(DType dtype, Bit bit) {
  const int bits = static_cast<int>(dtype_bytes(dtype)) * 8;
  if (bit == Bit::kSign) return bits - 1;
  if (bit == Bit::kExponent) return bits - 2;
  return dtype == DType::kF32 ? 22 : dtype == DType::kBf16 ? 6 : 9;
}

void flip(HostTensor& tensor, const Flip& what) {
  const int bit = bit_of(tensor.dtype(), what.bit);
  std::byte* byte = tensor.writable().data + what.element * dtype_bytes(tensor.dtype()) + bit / 8;  // little-endian
  *byte ^= static_cast<std::byte>(1 << (bit % 8));
}

// The tokens of the last query's row, which leaves most out, newest first.
std::vector<std::int64_t> last_row(const Problem& p, const Answer& right) {
  const std::byte* rows = right.of(Part::kRows).data();
  const std::int64_t capacity = p.geometry.row_capacity();
  std::int32_t count = 0;
  std::memcpy(&count, rows + (p.count() * capacity + p.count() - 1) * 4, 4);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = count; i-- > 0;) {
    std::int32_t position = 0;
    std::memcpy(&position, rows + ((p.count() - 1) * capacity + i) * 4, 4);
    tokens.push_back(position - p.anchor);
  }
  return tokens;
}

// Flips that should show in `part`, the likeliest first.
std::vector<Flip> candidates(const Problem& p, const Answer& right, Part part) {
  std::vector<Flip> flips;
  const auto add = [&](Input input, std::int64_t first, std::int64_t end, Bit bit) {
    for (std::int64_t i = first; i < end; ++i) flips.push_back({input, i, bit});
  };
  const Geometry& g = p.geometry;
  const std::int64_t last = p.count() - 1;
  const std::int64_t index_elements = g.index_heads() * g.index_dim();
  const std::int64_t elements = g.query_heads() * g.head_dim();
  switch (part) {
    case Part::kPooled:
      add(Input::kIndexKeys, 0, 4, Bit::kFraction);
      break;
    case Part::kScores:
      add(Input::kIndexQueries, last * index_elements, (last + 1) * index_elements, Bit::kFraction);
      break;
    case Part::kRows:
      add(Input::kIndexQueries, last * index_elements, (last + 1) * index_elements, Bit::kSign);
      for (std::int64_t t = 0; t < p.tokens(); t += g.group_tokens())
        flips.push_back({Input::kIndexKeys, t * g.index_dim(), Bit::kSign});
      break;
    case Part::kOutput:
      for (const std::int64_t token : last_row(p, right)) {
        if (g.values_alias_keys()) {
          flips.push_back({Input::kKeys, token * g.kv_heads() * g.head_dim(), Bit::kFraction});
        } else {
          flips.push_back({Input::kValues, token * g.kv_heads() * g.value_dim(), Bit::kFraction});
        }
      }
      break;
    case Part::kLse:
      add(Input::kQueries, last * elements, last * elements + 1, Bit::kFraction);
      add(Input::kQueries, last * elements, last * elements + 1, Bit::kExponent);  // where every logit is next to 0
      add(Input::kQueries, last * elements, (last + 1) * elements, Bit::kSign);
      break;
  }
  return flips;
}

}  // namespace

Result<std::string> flip_shows(const Problem& problem, const Way& way, const Answer& right, Part part) {
  for (const Flip& what : candidates(problem, right, part)) {
    Problem changed = problem;
    HostTensor& tensor = tensor_of(changed, what.input);
    flip(tensor, what);
    const auto now = answer(changed, way);
    if (!now.ok() && now.status().code() == Code::kNotFinite) continue;  // no input any more
    if (!now.ok()) return now.status();
    if (now->of(part).size() == right.of(part).size() && now->of(part) != right.of(part)) {
      return formatted("bit {} of {}[{}]", bit_of(tensor.dtype(), what.bit), name_of(what.input), what.element);
    }
  }
  return std::string();
}

bool flip_shows_in_inputs(const Problem& problem) {
  Problem changed = problem;
  flip(changed.keys, {Input::kKeys, changed.keys.elements() - 1, Bit::kFraction});
  return inputs_digest(changed) != inputs_digest(problem);
}

}  // namespace seriatim::agreement
