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
                 const std::vector<Part>& read) {
  RowsOut made;
  nb::object positions, counts;
  if (out.is_none()) {
    positions = empty_like_kind(like, DType::kI32, {queries, capacity});
    counts = empty_like_kind(like, DType::kI32, {queries});
  } else {
    std::tie(positions, counts) = pair_of(out, "out");
  }
  made.positions = out.is_none() ? output(positions, "out") : given_output(positions, "out");
  made.counts = out.is_none() ? output(counts, "out") : given_output(counts, "out");
  admit(seriatim::as_const(made.positions.view), seriatim::as_const(made.counts.view), queries, "out");
  const ConstTensor written = seriatim::as_const(made.positions.view);
  if (written.shape[1] < capacity) refuse("out", "rows of " + std::to_string(capacity) + " entries are needed");
  if (row_stride(written) != written.shape[1])
    refuse("out", "rows are strided; padding is written to all that lies between them");
  if (!out.is_none()) refuse_overlap({{"out", written}, {"out's counts", seriatim::as_const(made.counts.view)}}, read);
  made.rows = {reinterpret_cast<std::int32_t*>(made.positions.view.data),
               row_stride(seriatim::as_const(made.positions.view)),
               reinterpret_cast<std::int32_t*>(made.counts.view.data)};
  made.object = make_rows(positions, counts);
  return made;
}

RowsIn rows_in(nb::handle pair, std::int64_t queries) {
  RowsIn in;
  const auto [positions, counts] = pair_of(pair, "rows");
  in.positions = input(positions, "rows");
  in.counts = input(counts, "rows");
  admit(in.positions.view, in.counts.view, queries, "rows");
  for (std::int64_t q = 0; q < queries; ++q) {
    std::int32_t count = 0;
    std::memcpy(&count, in.counts.view.at(q), sizeof count);
    if (count < 0 || count > in.positions.view.shape[1])
      refuse("rows", "a count outside the row's storage", {.row = q});
  }
  in.rows = {reinterpret_cast<std::int32_t*>(const_cast<std::byte*>(in.positions.view.data)),
             row_stride(in.positions.view),
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
