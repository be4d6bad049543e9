#include "rows.hpp"

#include <atomic>
#include <cstring>
#include <tuple>
#include <utility>

#include "errors.hpp"

namespace seriatim::python {

namespace {

std::pair<nb::object, nb::object> pair_of(nb::handle pair, const char* argument) {
  if (!PyTuple_Check(pair.ptr()) || PyTuple_GET_SIZE(pair.ptr()) != 2)
    refuse(argument, "a pair of positions and counts is needed");
  return {nb::borrow(PyTuple_GET_ITEM(pair.ptr(), 0)), nb::borrow(PyTuple_GET_ITEM(pair.ptr(), 1))};
}

// [Q, S, ...] as [Q * S, ...], which it is in memory.
ConstTensor flat(const ConstTensor& given, std::int64_t selections, const char* argument) {
  if (selections == 1 || given.empty()) return given;
  if (given.rank < 2 || given.shape[1] != selections)
    refuse(argument, "the second axis is the geometry's " + std::to_string(selections) + " selections");
  if (given.shape[0] > 1 && given.stride_bytes[0] != selections * given.stride_bytes[1])
    refuse(argument, "the selections of a query do not stand side by side; copy them first");
  ConstTensor rows = given;
  rows.rank = given.rank - 1;
  rows.shape = {given.shape[0] * selections, given.shape[2], 1, 1};
  rows.stride_bytes = {given.stride_bytes[1], given.stride_bytes[2], 0, 0};
  return rows;
}

void admit(const ConstTensor& positions, const ConstTensor& counts, std::int64_t queries, const char* argument) {
  if (positions.empty() || counts.empty()) refuse(argument, "two arrays are needed");
  if (positions.dtype != DType::kI32 || counts.dtype != DType::kI32) refuse(argument, "positions and counts are int32");
  if (positions.rank != 2 || counts.rank != 1) refuse(argument, "positions have two axes and counts one");
  if (positions.shape[0] != queries || counts.shape[0] != queries)
    refuse(argument, "not one row and one count per query");
  if (positions.shape[1] > 1 && positions.stride_bytes[1] != 4)
    refuse(argument, "the last axis of positions is strided; copy it first");
  if (queries > 1 && counts.stride_bytes[0] != 4) refuse(argument, "counts are strided; copy them first");
  if (queries > 1 && positions.stride_bytes[0] % 4 != 0) refuse(argument, "rows are no whole entries apart");
}

std::int64_t row_stride(const ConstTensor& positions) {
  return positions.shape[0] > 1 ? positions.stride_bytes[0] / 4 : positions.shape[1];
}

}  // namespace

NanPolicy nan_policy(const std::string& name) {
  if (name == "refuse") return NanPolicy::kRefuse;
  if (name == "exclude") return NanPolicy::kExclude;
  refuse("nan", "'" + name + "' is none of refuse and exclude");
}

nb::object make_rows(nb::handle positions, nb::handle counts) {
  static std::atomic<PyObject*> known{nullptr};  // the class, kept until the process ends
  PyObject* rows = known.load();
  if (rows == nullptr) {
    rows = nb::object(nb::module_::import_("seriatim._types").attr("Rows")).release().ptr();
    known.store(rows);
  }
  // As a named tuple's own __new__, without the interpreter.
  static const auto make = reinterpret_cast<newfunc>(PyType_GetSlot(&PyTuple_Type, Py_tp_new));
  const nb::object pair = nb::make_tuple(nb::make_tuple(positions, counts));
  return nb::steal(make(reinterpret_cast<PyTypeObject*>(rows), pair.ptr(), nullptr));
}

RowsOut rows_out(nb::handle out, nb::handle like, std::int64_t queries, std::int64_t capacity,
                 const std::vector<Part>& read, std::int64_t selections) {
  RowsOut made;
  nb::object positions, counts;
  if (out.is_none()) {
    positions = selections == 1 ? empty_like_kind(like, DType::kI32, {queries, capacity})
                                : empty_like_kind(like, DType::kI32, {queries, selections, capacity});
    counts = selections == 1 ? empty_like_kind(like, DType::kI32, {queries})
                             : empty_like_kind(like, DType::kI32, {queries, selections});
  } else {
    std::tie(positions, counts) = pair_of(out, "out");
  }
  made.positions = out.is_none() ? output(positions, "out") : given_output(positions, "out");
  made.counts = out.is_none() ? output(counts, "out") : given_output(counts, "out");
  const ConstTensor written = flat(seriatim::as_const(made.positions.view), selections, "out");
  admit(written, flat(seriatim::as_const(made.counts.view), selections, "out"), queries * selections, "out");
  if (written.shape[1] < capacity) refuse("out", "rows of " + std::to_string(capacity) + " entries are needed");
  if (row_stride(written) != written.shape[1])
    refuse("out", "rows are strided; padding is written to all that lies between them");
  if (!out.is_none()) refuse_overlap({{"out", written}, {"out's counts", seriatim::as_const(made.counts.view)}}, read);
  made.rows = {reinterpret_cast<std::int32_t*>(made.positions.view.data), row_stride(written),
               reinterpret_cast<std::int32_t*>(made.counts.view.data)};
  made.object = make_rows(positions, counts);
  return made;
}

RowsIn rows_in(nb::handle pair, std::int64_t queries, std::int64_t selections) {
  RowsIn in;
  const auto [positions, counts] = pair_of(pair, "rows");
  in.positions = input(positions, "rows");
  in.counts = input(counts, "rows");
  const ConstTensor rows = flat(in.positions.view, selections, "rows");
  const ConstTensor counts_of = flat(in.counts.view, selections, "rows");
  admit(rows, counts_of, queries * selections, "rows");
  for (std::int64_t row = 0; row < queries * selections; ++row) {
    std::int32_t count = 0;
    std::memcpy(&count, counts_of.at(row), sizeof count);
    if (count < 0 || count > rows.shape[1])
      refuse("rows", "a count outside the row's storage", {.row = row / selections});
  }
  in.rows = {reinterpret_cast<std::int32_t*>(const_cast<std::byte*>(in.positions.view.data)), row_stride(rows),
             reinterpret_cast<std::int32_t*>(const_cast<std::byte*>(in.counts.view.data))};
  return in;
}

nb::object AttendOut::object() const {
  return gives_lse ? nb::object(nb::make_tuple(output_object, lse_object)) : output_object;
}

AttendOut attend_out(nb::handle out, nb::handle lse, bool return_lse, nb::handle like, DType dtype,
                     std::array<std::int64_t, 3> shape, const std::vector<Part>& read) {
  AttendOut made;
  made.output_object = out.is_none() ? empty_like_kind(like, dtype, {shape[0], shape[1], shape[2]}) : nb::borrow(out);
  made.output = out.is_none() ? output(made.output_object, "out") : given_output(out, "out");
  check_shape(seriatim::as_const(made.output.view), "out", {shape[0], shape[1], shape[2]});
  made.gives_lse = return_lse || !lse.is_none();
  if (made.gives_lse) {
    made.lse_object = lse.is_none() ? empty_like_kind(like, DType::kF32, {shape[0], shape[1]}) : nb::borrow(lse);
    made.lse = lse.is_none() ? output(made.lse_object, "lse") : given_output(lse, "lse");
    check_shape(seriatim::as_const(made.lse.view), "lse", {shape[0], shape[1]});
  }
  if (!out.is_none() || !lse.is_none())
    refuse_overlap({{"out", seriatim::as_const(made.output.view)}, {"lse", seriatim::as_const(made.lse.view)}}, read);
  return made;
}

}  // namespace seriatim::python
