// Kernels: which implementation of the computing modules runs. Every one gives the same bits; they differ in speed
// alone.
//
// "reference" is the scalar definition; the others are named after the instruction sets that this build holds and this
// machine has ("avx2", "avx3", "neon"). Only sets with a fused multiply-add are offered: a machine without one runs the
// reference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/status.hpp"

namespace seriatim {

class Kernels {
 public:
  // The implementation a process uses unless told otherwise: the one named by the environment variable
  // SERIATIM_KERNELS, else the fastest. Chosen once, on first use.
  // Errors  NotFound: the variable names what is not available; the message lists what is. The library's calls that
  //         take no Kernels fall back on the fastest then, so ask here first if the variable matters.
  static Result<Kernels> chosen();
  // Errors  NotFound: not a name, or not available on this machine; the message lists what is.
  static Result<Kernels> named(std::string_view name);
  // All that this machine can run, fastest first; "reference" is last.
  static std::vector<Kernels> available();
  static Kernels fastest();
  static Kernels reference() { return Kernels(0); }

  std::string name() const;
  bool is_reference() const { return target_ == 0; }
  friend bool operator==(Kernels, Kernels) = default;

  std::int64_t target() const { return target_; }  // for the modules' dispatch

 private:
  explicit Kernels(std::int64_t target) : target_(target) {}
  std::int64_t target_;  // the instruction set's bit; 0: the reference
};

// chosen(), or the fastest where the environment names what is not available.
Kernels default_kernels();

}  // namespace seriatim
