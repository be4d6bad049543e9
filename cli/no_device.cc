// What the tool says of devices when it was built without a backend.
#include "commands.hpp"
#include "device_engine.hpp"

namespace seriatim::cli {
namespace {

Status absent() {
  return Status::error(Code::kUnsupported, "device",
                       "device: this build has no device backend (-DSERIATIM_DEVICE=auto)");
}

}  // namespace

Result<Engine> device_engine(const std::string&) { return absent(); }

int devices() { return refuse(absent()); }

}  // namespace seriatim::cli
