// Rows and attention's results as arguments and as results: admitted, or made in the kind of an input.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "overlap.hpp"
#include "seriatim/select.hpp"
#include "seriatim/step.hpp"

namespace seriatim::python {

NanPolicy nan_policy(const std::string& name);

struct RowsOut {
  Rows rows;
  nb::object object;  // a seriatim.Rows
  Output positions, counts;
};

// New rows [queries, capacity] and counts [queries], with several selections [queries, selections, ...], in the kind of
// `like`, or those of `out`, a pair that shares no
// memory with what is `read`.
RowsOut rows_out(nb::handle out, nb::handle like, std::int64_t queries, std::int64_t capacity,
                 const std::vector<Part>& read = {}, std::int64_t selections = 1);

// A seriatim.Rows of the arrays.
nb::object make_rows(nb::handle positions, nb::handle counts);

struct RowsIn {
  Rows rows;
  Input positions, counts;
};

// A pair of positions [queries, width] i32, dense along the row, and counts [queries] i32, dense, none above the width.
RowsIn rows_in(nb::handle pair, std::int64_t queries, std::int64_t selections = 1);

struct AttendOut {
  Output output, lse;
  nb::object output_object, lse_object;
  bool gives_lse = false;
  nb::object object() const;
};

// `shape`: queries, query heads, value dim. `read`: what `out` and `lse` may share no memory with.
AttendOut attend_out(nb::handle out, nb::handle lse, bool return_lse, nb::handle like, DType dtype,
                     std::array<std::int64_t, 3> shape, const std::vector<Part>& read);

}  // namespace seriatim::python
