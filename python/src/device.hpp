// A cache whose pages have copies on a device, and the device's plan and attend over what the cache holds.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/device.hpp"
#include "seriatim/step.hpp"

namespace seriatim::python {

// Threads  calls take turns.
class CacheDevice {
 public:
  virtual ~CacheDevice() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual PageAllocator* allocator() = 0;
  // As Engine::plan and attend. Without the interpreter's lock.
  virtual Status plan(const LayerView& view, const IndexQueries& queries, NanPolicy nan, Rows rows) = 0;
  virtual Status attend(const LayerView& view, const AttendQueries& queries, ConstRows rows, Tensor output,
                        Tensor lse) = 0;
  // A sequence has lost tokens, or is gone: pages that only its last state holds become free.
  virtual void let_go() = 0;
};

// Errors  those of Device::open and of taking its memory; InvalidArgument: no capacity; Unsupported: a build without
//         devices.
Result<std::unique_ptr<CacheDevice>> make_cache_device(const std::string& name, const Geometry& geometry,
                                                       const CacheOptions& options);
Result<std::vector<DeviceInfo>> devices();
std::string lacks(const DeviceInfo& info);

void bind_device(nanobind::module_& module);

}  // namespace seriatim::python
