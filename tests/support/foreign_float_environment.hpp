// The floating-point environments that other software leaves behind on a thread, for tests that hold the library
// against them.
#pragma once

#include <cfenv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace seriatim::testing {

enum class Foreign : std::uint8_t { kNone, kFlush, kDown, kUp, kTowardZero, kTraps, kFlags };

inline constexpr Foreign kEveryForeign[] = {Foreign::kFlush,      Foreign::kDown,  Foreign::kUp,
                                            Foreign::kTowardZero, Foreign::kTraps, Foreign::kFlags};

constexpr std::string_view foreign_name(Foreign foreign) {
  switch (foreign) {
    case Foreign::kNone:
      return "default";
    case Foreign::kFlush:
      return "flush";
    case Foreign::kDown:
      return "down";
    case Foreign::kUp:
      return "up";
    case Foreign::kTowardZero:
      return "toward-zero";
    case Foreign::kTraps:
      return "traps";
    case Foreign::kFlags:
      return "flags";
  }
  return "";
}

// What the thread's registers hold: modes and sticky flags.
struct FloatRegisters {
  std::uint64_t control = 0;
  std::uint64_t status = 0;
  std::uint64_t x87 = 0;
  friend bool operator==(const FloatRegisters&, const FloatRegisters&) = default;

  static FloatRegisters now() {
    FloatRegisters registers;
#if defined(__x86_64__) || defined(__i386__)
    std::uint32_t mxcsr = 0;
    std::uint16_t word = 0;
    std::uint16_t status = 0;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1\n\tfnstsw %2" : "=m"(mxcsr), "=m"(word), "=m"(status)::"memory");
    registers = {mxcsr, status, word};
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(registers.control), "=r"(registers.status)::"memory");
#endif
    return registers;
  }
};

// Sets one of them on this thread and gives the former one back on leaving. Between, only the library may compute: with
// kTraps any inexact result of the test itself would end the process.
class ForeignFloatEnvironment {
 public:
  explicit ForeignFloatEnvironment(Foreign foreign) {
    std::fegetenv(&former_);
    std::feclearexcept(FE_ALL_EXCEPT);
    switch (foreign) {
      case Foreign::kNone:
        break;
      case Foreign::kFlush:
        flush();
        break;
      case Foreign::kDown:
        std::fesetround(FE_DOWNWARD);
        break;
      case Foreign::kUp:
        std::fesetround(FE_UPWARD);
        break;
      case Foreign::kTowardZero:
        std::fesetround(FE_TOWARDZERO);
        break;
      case Foreign::kTraps:
        feenableexcept(FE_ALL_EXCEPT);  // where the processor has none it changes nothing
        break;
      case Foreign::kFlags:
        std::feraiseexcept(FE_DIVBYZERO | FE_UNDERFLOW);
        break;
    }
    set_ = FloatRegisters::now();
  }
  ~ForeignFloatEnvironment() { std::fesetenv(&former_); }
  ForeignFloatEnvironment(const ForeignFloatEnvironment&) = delete;
  ForeignFloatEnvironment& operator=(const ForeignFloatEnvironment&) = delete;

  // Modes and flags are as they were set.
  bool untouched() const { return FloatRegisters::now() == set_; }

 private:
  static void flush() {
#if defined(__x86_64__) || defined(__i386__)
    std::uint32_t mxcsr = 0;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr)::"memory");
    mxcsr |= 0x8040;  // flush to zero, denormals are zero
    __asm__ volatile("ldmxcsr %0" ::"m"(mxcsr) : "memory");
#elif defined(__aarch64__)
    std::uint64_t fpcr = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr)::"memory");
    fpcr |= std::uint64_t{1} << 24;
    __asm__ volatile("msr fpcr, %0" ::"r"(fpcr) : "memory");
#endif
  }

  std::fenv_t former_{};
  FloatRegisters set_;
};

}  // namespace seriatim::testing
