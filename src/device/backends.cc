#include "device/backends.hpp"

#include <iterator>
#include <string_view>
#include <utility>

#ifdef SERIATIM_DEVICE_CUDA
#include "device/cuda_calls.hpp"
#endif
#ifdef SERIATIM_DEVICE_OPENCL
#include "base/format.hpp"
#include "device/opencl_calls.hpp"
#endif

namespace seriatim::device {
namespace {

void add(Found& all, Result<std::vector<Listed>> some) {
  if (some.ok()) {
    all.asked = true;
    all.devices.insert(all.devices.end(), std::make_move_iterator(some->begin()), std::make_move_iterator(some->end()));
  } else {
    all.fault = all.fault.ok() ? some.status() : both(all.fault.code(), all.fault, some.status());
  }
}

template <typename Calls>
Result<std::vector<Listed>> find(const Result<const Calls*>& calls) {
  if (!calls.ok()) return calls.status();
  return find_devices(**calls);
}

}  // namespace

Status both(Code code, const Status& first, const Status& second) {
  constexpr std::string_view kPrefix = "device: ";
  std::string_view more = second.message();
  if (more.starts_with(kPrefix)) more.remove_prefix(kPrefix.size());
  return Status::error(code, "device", formatted("{}; {}", first.message(), more));
}

Found find_all() {
  Found all;
#ifdef SERIATIM_DEVICE_OPENCL
  add(all, find(installed_opencl()));
#endif
#ifdef SERIATIM_DEVICE_CUDA
  add(all, find(installed_cuda()));
#endif
  return all;
}

}  // namespace seriatim::device
