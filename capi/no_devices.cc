#include "devices.hpp"

namespace seriatim::capi {
namespace {

Status without() { return Status::error(Code::kUnsupported, "device", "device: this build has none"); }

}  // namespace

Result<std::int64_t> count_devices() { return without(); }
Status describe_device(std::int64_t, seriatim_device_info&) { return without(); }
Result<Engine> engine_on(std::string_view, std::int32_t) { return without(); }

}  // namespace seriatim::capi
