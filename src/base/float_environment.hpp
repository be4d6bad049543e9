// The floating-point environment of the thread, held at its default while the library computes.
//
// Other software in the process may have set flush-to-zero, a rounding mode or traps; the bits of a result must depend
// on none of them, and the caller must find its modes and sticky flags as they were. So each public function that
// computes holds one of these from its first line, and Task::run holds one around every unit of work, because a
// thread's modes are its own: a worker has those of whatever was set where it was made.
#pragma once

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

#include <cstdint>

namespace seriatim {

// Round to nearest (ties to even), subnormals kept, nothing trapped. Where the thread is in that mode already it costs
// two reads of registers, and on leaving a third and the return of the caller's sticky flags where they differ.
class DefaultFloatEnvironment {
 public:
#if defined(__x86_64__) || defined(__i386__)
  DefaultFloatEnvironment() noexcept : control_(_mm_getcsr()) {
    if ((control_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
    std::uint16_t x87;  // what the C library rounds by where it reads and prints decimal numbers
    __asm__ volatile("fnstcw %0" : "=m"(x87)::"memory");
    if ((x87 & kX87Modes) != kX87Default) enter_x87();
  }
  ~DefaultFloatEnvironment() {
    __asm__ volatile("" ::: "memory");  // what was computed is stored before
    if (_mm_getcsr() != control_) _mm_setcsr(control_);
    if (x87_changed_) leave_x87();
  }
#elif defined(__aarch64__)
  DefaultFloatEnvironment() noexcept : control_(read_control()), flags_(read_flags()) {
    if ((control_ & kModes) != 0) write_control(control_ & ~kModes);
  }
  ~DefaultFloatEnvironment() {
    if ((control_ & kModes) != 0) write_control(control_);
    if (read_flags() != flags_) write_flags(flags_);
  }
#else
  DefaultFloatEnvironment() noexcept {
    std::fegetenv(&environment_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&environment_); }
#endif

  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__) || defined(__i386__)
  static constexpr std::uint32_t kFlags = 0x3F;            // MXCSR: six sticky flags
  static constexpr std::uint32_t kDefault = 0x1F80;        // six masks; to nearest, no FZ, no DAZ
  static constexpr std::uint16_t kX87Modes = 0x0F3F;       // six masks, precision, rounding
  static constexpr std::uint16_t kX87Default = 0x033F;     // all masked, 64 bits, to nearest
  static constexpr std::uint16_t kX87DefaultWord = 0x37F;  // the same with its reserved bit, as the ABI has it

  struct X87 {  // what fnstenv stores
    std::uint32_t words[7];
  };

  // Out of the way of the usual case. fnstenv masks what was trapped without waiting for a pending trap; fldenv gives
  // it all back, flags included.
  [[gnu::noinline]] void enter_x87() noexcept {
    __asm__ volatile("fnstenv %0" : "=m"(x87_)::"memory");
    const std::uint16_t word = kX87DefaultWord;
    __asm__ volatile("fldcw %0" ::"m"(word) : "memory");
    x87_changed_ = true;
  }
  [[gnu::noinline]] void leave_x87() noexcept { __asm__ volatile("fldenv %0" ::"m"(x87_) : "memory"); }

  std::uint32_t control_;
  bool x87_changed_ = false;
  X87 x87_;
#elif defined(__aarch64__)
  // FPCR: rounding (22, 23), flush (24), default NaN (25), half formats (26, 19), traps (8 .. 12, 15), FEAT_AFP (0 ..
  // 2).
  static constexpr std::uint64_t kModes = 0x07C89F07;

  static std::uint64_t read_control() noexcept {
    std::uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value)::"memory");
    return value;
  }
  static void write_control(std::uint64_t value) noexcept { __asm__ volatile("msr fpcr, %0" ::"r"(value) : "memory"); }
  static std::uint64_t read_flags() noexcept {
    std::uint64_t value;
    __asm__ volatile("mrs %0, fpsr" : "=r"(value)::"memory");
    return value;
  }
  static void write_flags(std::uint64_t value) noexcept { __asm__ volatile("msr fpsr, %0" ::"r"(value) : "memory"); }

  std::uint64_t control_;
  std::uint64_t flags_;
#else
  std::fenv_t environment_;
#endif
};

}  // namespace seriatim
