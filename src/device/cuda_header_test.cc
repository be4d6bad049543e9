// This module's declarations of CUDA's functions against NVIDIA's own headers, where those are.
#include <cuda.h>
#include <gtest/gtest.h>
#include <nvrtc.h>

#include <type_traits>

#include "device/cuda_calls.hpp"

namespace seriatim::testing {
namespace {

// Alike for a call: both pointers, or both integers or enumerations of one size.
template <typename A, typename B>
constexpr bool kAlike = std::is_pointer_v<A> == std::is_pointer_v<B> && sizeof(A) == sizeof(B) &&
                        !std::is_floating_point_v<A> && !std::is_floating_point_v<B>;

template <typename A, typename B>
constexpr bool kSameCall = false;
template <typename A, typename... As, typename B, typename... Bs>
  requires(sizeof...(As) == sizeof...(Bs))
constexpr bool kSameCall<A (*)(As...), B (*)(Bs...)> = kAlike<A, B> && (kAlike<As, Bs> && ...);

#define SERIATIM_COMPARE(ours, theirs, parameters)                                           \
  static_assert(kSameCall<decltype(Calls::ours), decltype(&::theirs)>, "differs: " #theirs); \
  ++compared;

TEST(CudaHeader, OurDeclarationsAreThoseOfTheToolkit) {
  int compared = 0;
  {
    using Calls = device::CudaCalls;
    SERIATIM_CUDA_CALLS(SERIATIM_COMPARE)
  }
  {
    using Calls = device::NvrtcCalls;
    SERIATIM_NVRTC_CALLS(SERIATIM_COMPARE)
  }
  EXPECT_EQ(compared, 34);
  static_assert(!kSameCall<int (*)(int), int (*)(int*)> && !kSameCall<int (*)(int), int (*)(long long)> &&
                !kSameCall<int (*)(), int (*)(int)>);
  static_assert(device::kCuOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && device::kCuNoDevice == CUDA_ERROR_NO_DEVICE);
  static_assert(device::kNvrtcCompilation == NVRTC_ERROR_COMPILATION);
  static_assert(device::kCuComputeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  static_assert(device::kCuComputeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

}  // namespace
}  // namespace seriatim::testing
