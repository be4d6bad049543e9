#include "device/backends.hpp"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#ifdef SERIATIM_DEVICE_CUDA
#include "device/cuda_calls.hpp"
#endif
#ifdef SERIATIM_DEVICE_OPENCL
#include "device/opencl_calls.hpp"
#endif

namespace seriatim::device {
namespace {

#if defined(SERIATIM_DEVICE_CUDA) || defined(SERIATIM_DEVICE_OPENCL)
void add(Found& all, Result<std::vector<Listed>> some) {
  if (some.ok()) {
    all.asked = true;
    all.devices.insert(all.devices.end(), std::make_move_iterator(some->begin()), std::make_move_iterator(some->end()));
  } else if (all.fault.ok()) {
    all.fault = some.status();
  } else {
    constexpr std::string_view kPrefix = "device: ";
    const std::string_view more = some.status().message();
    all.fault = Status::error(all.fault.code(), "device", fmt::format("{}; {}", all.fault.message(), more.substr(more.starts_with(kPrefix) ? kPrefix.size() : 0)));
  }
}
#endif

template <typename Calls>
Result<std::vector<Listed>> find(const Result<const Calls*>& calls) {
  if (!calls.ok()) return calls.status();
  return find_devices(**calls);
}

}  // namespace

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
