// One opened device as the module uses it: memory, kernels and a queue in order. A backend is one implementation of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "seriatim/device.hpp"
#include "seriatim/status.hpp"

namespace seriatim::device {

// A backend's own handles; 0 is none. As an argument of a kernel a memory handle is passed as these bytes.
using Memory = std::uintptr_t;
using KernelHandle = std::uintptr_t;

enum class Kernel : std::uint8_t { kPool, kScore, kSelect, kRow, kSplits, kFold };
inline constexpr std::array<const char*, 6> kKernelNames{"pool_groups", "score_groups",  "select_groups",
                                                         "expand_rows", "attend_splits", "fold_splits"};
using Kernels = std::array<KernelHandle, kKernelNames.size()>;

// What the kernels' text is built with.
struct Build {
  const char* text = nullptr;
  std::int64_t work_group = 0;
  DType kv_dtype = DType::kF32;
  DType index_dtype = DType::kF32;
};

// Work-groups along the three axes.
struct Grid {
  std::int64_t x = 1;
  std::int64_t y = 1;
  std::int64_t z = 1;
};

// By value, or a memory handle.
struct Argument {
  const void* value = nullptr;
  std::size_t bytes = 0;
};

// Threads  one call at a time; which thread calls does not matter.
class Driver {
 public:
  virtual ~Driver() = default;  // waits; kernels go with it

  // Errors  OutOfMemory, Io.
  virtual Result<Memory> take(std::int64_t bytes) = 0;
  virtual void release(Memory memory) noexcept = 0;
  // Memory of the host that the device reads and writes while the host goes on. 64-byte aligned. Errors  OutOfMemory,
  // Io.
  virtual Result<std::byte*> take_host(std::int64_t bytes) = 0;
  virtual void release_host(std::byte* memory) noexcept = 0;

  // Errors  Unsupported: with the build log. OutOfMemory, Io.
  virtual Result<Kernels> build(const Build& what) = 0;

  // These enqueue and return; host memory stays as it is until finish(). Errors  OutOfMemory, Io.
  virtual Status write(Memory to, std::int64_t offset, const void* from, std::int64_t bytes) = 0;
  virtual Status read(Memory from, void* to, std::int64_t bytes) = 0;
  virtual Status copy(Memory from, Memory to, std::int64_t bytes) = 0;
  virtual Status launch(KernelHandle kernel, const char* name, Grid grid, std::int64_t work_group,
                        std::span<const Argument> arguments) = 0;
  // Starts what was enqueued.
  virtual Status flush() = 0;
  virtual Status finish() = 0;
};

// A device that a backend found, and how it is opened.
struct Listed {
  DeviceInfo info;
  std::function<Result<std::unique_ptr<Driver>>()> open;
};

}  // namespace seriatim::device
