// The kernels' text through CUDA's own compiler, where the machine has it: it builds, and it holds no arithmetic but
// what is written. No GPU is needed. A machine without the compiler skips these; where SERIATIM_NEED_NVRTC is set, it
// fails them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "device/cuda_calls.hpp"
#include "device/kernel_text.hpp"
#include "support/bits.hpp"

namespace seriatim::testing {
namespace {

using device::Build;
using device::Compiled;

bool no_compiler() { return !device::installed_nvrtc().ok() && std::getenv("SERIATIM_NEED_NVRTC") == nullptr; }
#define SERIATIM_SKIP_WITHOUT_COMPILER() \
  if (no_compiler()) GTEST_SKIP() << device::installed_nvrtc().status().message()

Result<Compiled> compiled(const Build& what, const char* architecture = "sm_90",
                          std::vector<const char*> options = {}) {
  const auto compiler = device::installed_nvrtc();
  if (!compiler.ok()) return compiler.status();
  return device::compile(**compiler, what, architecture, std::move(options));
}

std::int64_t count(std::string_view text, std::string_view what) {
  std::int64_t found = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

std::string_view view(const std::vector<char>& text) { return {text.data(), text.size()}; }

TEST(CudaText, BuildsForEveryPairOfDTypesAndHasEveryKernel) {
  SERIATIM_SKIP_WITHOUT_COMPILER();
  for (const DType kv : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const DType index : {DType::kF32, DType::kBf16, DType::kF16}) {
      const auto made = compiled({device::kKernelText, 128, kv, index});
      ASSERT_TRUE(made.ok()) << made.status().message();
      EXPECT_GT(made->code.size(), 10'000U);
      for (const char* name : device::kKernelNames)
        EXPECT_EQ(count(view(made->ptx), std::string(".entry ") + name + "("), 1) << name;
    }
  }
}

TEST(CudaText, BuildsForEveryGenerationThatTheCompilerKnows) {
  SERIATIM_SKIP_WITHOUT_COMPILER();
  for (const char* architecture : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90"}) {
    const auto made = compiled({device::kKernelText, 128, DType::kBf16, DType::kBf16}, architecture);
    EXPECT_TRUE(made.ok()) << architecture << ": " << made.status().message();
  }
}

TEST(CudaText, RoundsEveryOperationAndFlushesNothing) {
  SERIATIM_SKIP_WITHOUT_COMPILER();
  const auto made = compiled({device::kKernelText, 128, DType::kBf16, DType::kBf16});
  ASSERT_TRUE(made.ok()) << made.status().message();
  const std::string_view ptx = view(made->ptx);
  EXPECT_GT(count(ptx, "mul.rn.f32"), 10);
  EXPECT_GT(count(ptx, "add.rn.f32"), 10);
  EXPECT_GT(count(ptx, "mul.rn.f64"), 10);
  EXPECT_GT(count(ptx, "div.rn.f32"), 0);
  EXPECT_GT(count(ptx, "sqrt.rn.f32"), 0);
  for (const char* none : {"\tmul.f32", "\tadd.f32", "\tsub.f32", "\tmul.f64", "\tadd.f64", "\tsub.f64", ".ftz",
                           ".approx", "div.full", "mad.f32", "mad.rn.f32"}) {
    EXPECT_EQ(count(ptx, none), 0) << none;
  }
}

// With every FMA32 turned into a call, none may be left; and where contraction is on, the same count finds some.
TEST(CudaText, FusesNothingThatIsNotWrittenAsFused) {
  SERIATIM_SKIP_WITHOUT_COMPILER();
  std::string text(device::kKernelText);
  constexpr std::string_view kFused = "#define FMA32(a, b, c) __fmaf_rn(a, b, c)";
  const std::size_t at = text.find(kFused);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, kFused.size(), "#define FMA32(a, b, c) asked_for(a, b, c)");
  text.insert(0, "extern \"C\" __device__ float asked_for(float a, float b, float c);\n");
  const Build marked{text.c_str(), 128, DType::kBf16, DType::kBf16};
  const auto made = compiled(marked, "sm_90", {"--relocatable-device-code=true"});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_GT(count(view(made->ptx), "asked_for"), 100);
  EXPECT_EQ(count(view(made->ptx), "\tfma."), 0);
  const auto contracted = compiled(marked, "sm_90", {"--relocatable-device-code=true", "--fmad=true"});
  ASSERT_TRUE(contracted.ok()) << contracted.status().message();
  EXPECT_GT(count(view(contracted->ptx), "\tfma."), 0);
}

TEST(CudaText, ATextThatDoesNotBuildGivesTheLog) {
  SERIATIM_SKIP_WITHOUT_COMPILER();
  const auto made = compiled(
      {"extern \"C\" __global__ void broken(int* x) { x[0] = no_such_name; }\n", 128, DType::kF32, DType::kF32});
  EXPECT_TRUE(fails_with(made.status(), Code::kUnsupported, "device"));
  EXPECT_NE(made.status().message().find("no_such_name"), std::string_view::npos) << made.status().message();
}

}  // namespace
}  // namespace seriatim::testing
