// One problem's cache as a device sees it, so that a device is one more way. Without a backend or a device there is
// none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agreement/answer.hpp"
#include "agreement/problem.hpp"
#include "seriatim/cache.hpp"
#include "seriatim/status.hpp"
#include "seriatim/step.hpp"

namespace seriatim::agreement {

class DeviceSide {
 public:
  virtual ~DeviceSide() = default;
  virtual PageAllocator& allocator() = 0;
  virtual Status stage(const LayerView& layer) = 0;
  // Every score of every query over what was staged last.
  virtual Result<std::vector<std::vector<float>>> scores(const IndexQueries& queries) = 0;
  virtual Status ask(const IndexQueries& index, const AttendQueries& queries, Rows rows, Tensor output, Tensor lse) = 0;
  // Follows the published state and reads its pooled keys back: [groups][dim].
  virtual Result<std::vector<std::byte>> pooled(const Snapshot& snapshot) = 0;
};

// The backends that have a device that keeps the bits.
std::vector<std::string> device_backends();
// "opencl:0 (product), cuda:0 (product)"; empty where there is none.
std::string device_products();

// Errors  those of the device room.
Result<std::unique_ptr<DeviceSide>> make_device_side(const DeviceWay& way, const Problem& problem);

}  // namespace seriatim::agreement
