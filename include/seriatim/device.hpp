// Device: the path on an accelerator. The same bits as on the host, because every kernel runs the contract's chains.
//
//   Device           one opened accelerator and its queue
//   DeviceMemory     pages that a Cache takes its slots from, each with its copy on the device
//   DeviceSequence   what of one sequence the device holds; brought up to a snapshot, or to staged tokens,
//                    before a step
//   DeviceWorkspace  plan and attend: enqueued, finished by wait()
//
// The cache stays what it is: it decides, checks and publishes on the host, and its transactions are the only ones. The
// device holds copies of published and staged slots in the same layout. A copy counts as good while the sequence's last
// snapshot holds its page, because a published slot is never written again while anything holds it (cache.hpp, 4).
// Keys, values and raw index keys cross once, when they are new; pooled keys are computed on the device.
//
// Backends are OpenCL and CUDA; both find their libraries when they are asked, so a program runs where neither is. CUDA
// needs NVRTC too (libnvrtc.so; the environment's SERIATIM_NVRTC can name the file), which compiles the kernels for the
// GPU at hand. There only in builds with a device backend (SERIATIM_DEVICE); the functions are missing otherwise.
// Threads  one call at a time per Device and all that belongs to it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/cache.hpp"
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

// A region of host memory and one buffer of the device's, place for place. Give it to one Cache as its allocator.
class DeviceMemory final : public PageAllocator {
 public:
  // Errors  InvalidArgument: not positive. OutOfMemory: of the host or the device. Io.
  static Result<std::unique_ptr<DeviceMemory>> create(std::shared_ptr<Device> device, std::int64_t bytes);
  // Bytes that hold all pages of a cache of these layers and so many tokens, whatever their size.
  // Errors  InvalidArgument: a negative count. Overflow.
  static Result<std::int64_t> bytes_for(const Geometry& geometry, std::int64_t layers, std::int64_t tokens);
  ~DeviceMemory() override;
  std::byte* allocate(std::int64_t bytes) override;
  void release(std::byte* memory, std::int64_t bytes) noexcept override;

  struct Impl;  // opaque
  Impl& impl() { return *impl_; }
  explicit DeviceMemory(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// One sequence of a cache as the device sees it.
class DeviceSequence {
 public:
  // Takes   the geometry, layers and largest length of the sequence; all memory is taken here.
  //         `memory` outlives the sequence.
  // Errors  InvalidArgument. Unsupported: the kernels do not build (the message ends with the driver's log).
  //         OutOfMemory, Io.
  static Result<DeviceSequence> create(DeviceMemory& memory, const Geometry& geometry,
                                       const std::vector<LayerParameters>& layers, std::int64_t max_tokens);
  DeviceSequence(DeviceSequence&&) noexcept;
  DeviceSequence& operator=(DeviceSequence&&) noexcept;
  ~DeviceSequence();

  // Sends what the device lacks of a published state and, on success, holds that state in place of the last one.
  // Whatever came between (append, truncate, evict, fork, copy, restore) only decides how much is sent.
  // Errors  InvalidArgument: a layer or page that is not of this memory. Capacity: more than max_tokens. OutOfMemory,
  //         Io: the driver; the state that was held is held still.
  Status follow(const Snapshot& snapshot);
  // Starts from what `other`, a sequence of the same memory, holds: a fork sends nothing that its parent sent.
  void share(const DeviceSequence& other);

  // Sends the staged tokens of one layer beside what is held. They serve the next steps until another stage() or
  // follow(); the transaction stays open and unchanged until wait(). Errors as follow.
  Status stage(std::int64_t layer, const LayerView& staged);

  // Bytes sent since the last call.
  std::int64_t take_sent_bytes();

  struct Impl;  // opaque
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  explicit DeviceSequence(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// All memory of a step, taken once. plan() and attend() copy their inputs, enqueue and return; outputs are written by
// wait() alone, so that on any error they are as they were.
class DeviceWorkspace {
 public:
  // Errors  InvalidArgument: counts. Overflow. Unsupported: the kernels do not build. OutOfMemory, Io.
  static Result<DeviceWorkspace> create(std::shared_ptr<Device> device, const Geometry& geometry,
                                        std::int64_t max_visible_tokens, std::int64_t max_queries);
  DeviceWorkspace(DeviceWorkspace&&) noexcept;
  DeviceWorkspace& operator=(DeviceWorkspace&&) noexcept;
  ~DeviceWorkspace();

  // As seriatim::plan over the sequence's layer as it was last followed or staged. At most one plan() before a wait().
  // Errors  as plan, but NotANumber is wait()'s. Capacity: more queries than the workspace was made for.
  Status plan(const DeviceSequence& sequence, std::int64_t layer, const IndexQueries& queries, NanPolicy nan,
              Rows rows);
  // As seriatim::attend. Without rows: over those of the plan() before, which stay on the device. At most one attend()
  // before a wait().
  // Errors  as attend, but Overflow is wait()'s. Capacity: queries, or a row past row_capacity().
  Status attend(const DeviceSequence& sequence, std::int64_t layer, const AttendQueries& queries,
                std::optional<Rows> rows, Tensor output, Tensor lse);
  // Ends what was enqueued and writes rows, outputs and lse.
  // Errors  what the driver reports: OutOfMemory, Io; sequences then send everything anew. NotANumber: the first query
  //         and group. Nothing is written by these. Overflow: as attend.
  Status wait();

  std::int64_t device_bytes() const;
  const WorkDone& done() const;

  struct Impl;  // opaque
  Impl& impl() { return *impl_; }

 private:
  explicit DeviceWorkspace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace seriatim
