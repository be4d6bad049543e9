// Device: an accelerator that an Engine works on (Engine::on, seriatim/step.hpp). The same bits as on the host, because
// every kernel runs the contract's chains.
//
// The cache stays what it is: it decides, checks and publishes on the host, and its transactions are the only ones. Its
// pages come from Engine::allocator() and have copies on the device in the same layout, which the engine brings up to
// what it is asked about. A copy counts as good while the engine holds the state that it was made from, because a
// published slot is never written again while anything holds it (cache.hpp, 4). Keys, values and raw index keys cross
// once, when they are new; pooled keys are computed on the device.
//
// Backends are OpenCL and CUDA; both find their libraries when they are asked, so a program runs where neither is. CUDA
// needs NVRTC too (libnvrtc.so; the environment's SERIATIM_NVRTC can name the file), which compiles the kernels for the
// GPU at hand. There only in builds with a device backend (SERIATIM_DEVICE); the functions are missing otherwise.
// Threads  one call at a time per Device and all that belongs to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/status.hpp"
#include "seriatim/step.hpp"

namespace seriatim {

// What a device is and what it promises of its arithmetic.
struct DeviceInfo {
  std::string name;     // as open() takes it: "opencl:0", numbered over all platforms; "cuda:0"
  std::string product;  // what the driver calls it
  std::string driver;
  bool doubles = false;     // f64, for the rotation's sine and cosine
  bool fma = false;         // correctly rounded fused multiply-add in f32
  bool division = false;    // correctly rounded f32 division and square root
  bool subnormals = false;  // f32 subnormals are kept
  bool rounds = false;      // to nearest, ties to even
  std::int64_t memory_bytes = 0;
  std::int64_t largest_buffer_bytes = 0;

  // Empty if the device keeps the library's bits; else what it does not promise, by name.
  std::string lacks() const;
};

// The devices of every backend. None at all is not an error.
// Errors  Unsupported: the machine has no backend's loader or driver. Io.
Result<std::vector<DeviceInfo>> list_devices();

struct DeviceOptions {
  // Lanes of a work-group, 1 .. 1024; 0: what suits the device. The bits do not depend on it.
  std::int64_t work_group = 0;
  bool accept_other_bits = false;  // also a device that does not promise the arithmetic
};

class Device {
 public:
  // Takes   a name that list_devices() gives, or "opencl" or "cuda" for the first of those that keeps the bits
  // Errors  NotFound: the name; the message lists what there is. Unsupported: no loader or compiler, or the device
  //         lacks a promise. InvalidArgument: work_group. OutOfMemory, Io: what the driver refused.
  static Result<std::shared_ptr<Device>> open(std::string_view name, const DeviceOptions& options = {});
  ~Device();

  const DeviceInfo& info() const;

  struct Impl;  // opaque
  Impl& impl() { return *impl_; }
  explicit Device(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace seriatim
