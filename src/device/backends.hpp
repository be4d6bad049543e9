// The backends that this build has.
#pragma once

#include <vector>

#include "device/driver.hpp"

namespace seriatim::device {

struct Found {
  std::vector<Listed> devices;
  bool asked = false;  // a backend could be asked
  Status fault;        // why others could not: no loader, or what a driver reported
};

// One status with both messages.
Status both(Code code, const Status& first, const Status& second);

// The devices of all backends, numbered in each.
Found find_all();

}  // namespace seriatim::device
