// C values -> the library's: structs of other versions, tensors, arrays, flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "seriatim.h"
#include "seriatim/index.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/select.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim::capi {

Status invalid(const char* argument, const char* what);
// The same failure, of one ask of a call.
Status in_ask(std::int64_t ask, const Status& failure);

// Copies a struct that starts with its size over `taken` [taken_bytes], which holds the defaults.
// Errors  InvalidArgument: NULL, a size that is none. Unsupported: bytes past `taken` that are not 0 (index = the
//         first).
Status take_bytes(const char* name, const void* given, void* taken, std::size_t taken_bytes);
// The same for a struct that is written: give_bytes() writes no more than it has and zeroes what this library does not
// know.
Status check_output_bytes(const char* name, const void* out);
void give_bytes(void* out, const void* value, std::size_t value_bytes);

template <typename T>
Status take_struct(const char* name, const T* given, T& taken) {
  return take_bytes(name, given, &taken, sizeof taken);
}

// Takes   out: checked by check_output_bytes
template <typename T>
void give_struct(T* out, const T& value) {
  give_bytes(out, &value, sizeof value);
}

// Errors  InvalidArgument: NULL, a dtype or rank that is none, elements without memory. Extents and strides are the
//         library's to judge.
Status take_tensor(const char* name, const seriatim_tensor* given, ConstTensor& taken);
Status take_tensor(const char* name, const seriatim_tensor* given, Tensor& taken);
// The same where the data is not read: how something is laid out.
Status take_layout(const char* name, const seriatim_tensor* given, ConstTensor& taken);
// The same where NULL means none; `taken` stays empty then.
template <typename T>
Status take_tensor_or_null(const char* name, const seriatim_tensor* given, T& taken) {
  return given == nullptr ? Status() : take_tensor(name, given, taken);
}

// Errors  InvalidArgument: a negative or impossible count, NULL with a count.
Status check_array(const char* name, const void* data, std::int64_t count, std::size_t element_bytes);

template <typename T>
Status take_array(const char* name, T* data, std::int64_t count, std::span<T>& taken) {
  if (Status s = check_array(name, data, count, sizeof(T)); !s.ok()) return s;
  taken = {data, static_cast<std::size_t>(count)};
  return {};
}

// Errors  InvalidArgument: neither 0 nor 1.
Status take_flag(const char* name, std::int32_t given, bool& taken);
// Errors  InvalidArgument: outside 0..last.
Status check_choice(const char* name, std::int32_t given, std::int32_t last);
// Errors  Unsupported: not 0.
Status check_reserved(const char* name, std::int32_t given);
Status take_nan_policy(std::int32_t given, NanPolicy& taken);
// Errors  NotFound. NULL: the default.
Status take_kernels(const char* name, Kernels& taken);

// [T][3] as the library sees it.
inline const Coordinates* take_coordinates(const std::int32_t* given) {
  static_assert(sizeof(Coordinates) == 3 * sizeof(std::int32_t) && alignof(Coordinates) == alignof(std::int32_t));
  return reinterpret_cast<const Coordinates*>(given);
}

}  // namespace seriatim::capi
