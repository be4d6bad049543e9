#include "seriatim/kernels.hpp"

#include <cctype>
#include <cstdlib>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

// The canonical chains need a fused multiply-add in hardware; without one the reference runs. Vectors whose size is not
// known when compiling (SVE) do not fit the kernels' tiles; such machines run NEON.
bool has_fma() {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE
  return false;
#elif HWY_ARCH_X86
  return HWY_TARGET <= HWY_AVX2;
#else
  return true;
#endif
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/format.hpp"
#include "base/kernel_dispatch.hpp"

namespace seriatim {
namespace {

HWY_EXPORT(has_fma);

std::string list_names() {
  std::string names;
  for (const Kernels& kernels : Kernels::available()) names += (names.empty() ? "" : ", ") + kernels.name();
  return names;
}

Result<Kernels> choose() {
  const char* name = std::getenv("SERIATIM_KERNELS");
  if (name == nullptr || *name == '\0') return Kernels::fastest();
  return Kernels::named(name);
}

}  // namespace

std::string Kernels::name() const {
  if (is_reference()) return "reference";
  std::string name = hwy::TargetName(target_);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::vector<Kernels> Kernels::available() {
  std::vector<Kernels> all;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (SERIATIM_DISPATCH(has_fma, target)()) all.push_back(Kernels(target));
  }
  all.push_back(reference());
  return all;
}

Kernels Kernels::fastest() {
  static const Kernels first = available().front();
  return first;
}

Result<Kernels> Kernels::named(std::string_view name) {
  for (const Kernels& kernels : available()) {
    if (kernels.name() == name) return kernels;
  }
  return Status::error(Code::kNotFound, "kernels",
                       formatted("kernels: {:.32} is not available here; there are {}", name, list_names()));
}

Result<Kernels> Kernels::chosen() {
  static const Result<Kernels> choice = choose();
  return choice;
}

Kernels default_kernels() {
  static const Kernels kernels = Kernels::chosen().ok() ? *Kernels::chosen() : Kernels::fastest();
  return kernels;
}

}  // namespace seriatim
#endif  // HWY_ONCE
