#include "call.hpp"
#include "convert.hpp"
#include "devices.hpp"

using namespace seriatim;
using namespace seriatim::capi;

void seriatim_device_info_init(seriatim_device_info* info) {
  if (info == nullptr) return;
  *info = {};
  info->struct_size = sizeof *info;
}

seriatim_status seriatim_device_count(std::int64_t* count, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"count", count}}); !s.ok()) return s;
    return give(count_devices(), count);
  });
}

seriatim_status seriatim_device_get(std::int64_t index, seriatim_device_info* info, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = check_output_bytes("info", info); !s.ok()) return s;
    seriatim_device_info told{};
    if (Status s = describe_device(index, told); !s.ok()) return s;
    give_struct(info, told);
    return {};
  });
}
