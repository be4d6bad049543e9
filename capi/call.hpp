// What every function of the C ABI does around its one call: nothing escapes, errors go into the caller's struct.
#pragma once

#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <utility>

#include "seriatim.h"
#include "seriatim/status.hpp"

namespace seriatim::capi {

// False for a struct that is too small or was not initialised; true for none at all.
bool can_report(const seriatim_error* error) noexcept;

// Writes `status` to `error`, where there is one. Gives  the status's number.
seriatim_status report(const Status& status, seriatim_error* error) noexcept;
// The same for a fault that no Code describes.
seriatim_status report_internal(const char* what, seriatim_error* error) noexcept;

// Runs `body`, which returns a Status.
template <typename Body>
seriatim_status call(seriatim_error* error, Body&& body) noexcept {
  if (!can_report(error)) return SERIATIM_INVALID_ARGUMENT;
  try {
    return report(body(), error);
  } catch (const std::bad_alloc&) {
    return report(Status::error(Code::kOutOfMemory, "memory", "memory: the system refused it"), error);
  } catch (const std::length_error&) {
    return report(Status::error(Code::kOutOfMemory, "memory", "memory: more than there can be"), error);
  } catch (const std::exception& fault) {
    return report_internal(fault.what(), error);
  } catch (...) {
    return report_internal("an exception of no known type", error);
  }
}

struct Needed {
  const char* name;
  const void* pointer;
};

// Errors  InvalidArgument: the first that is NULL.
Status need(std::initializer_list<Needed> all);

// Moves a result's value out, or gives its failure.
template <typename T, typename Out>
Status give(Result<T>&& result, Out* out) {
  if (!result.ok()) return result.status();
  *out = std::move(result).value();
  return {};
}

}  // namespace seriatim::capi
