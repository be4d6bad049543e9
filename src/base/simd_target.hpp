// SERIATIM_HAS_SIMD: whether the instruction set being compiled can run the modules' vector code. It needs a fused
// multiply-add and vectors whose size the compiler knows. Looked at anew for every instruction set: no include guard.
#undef SERIATIM_HAS_SIMD
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE
#define SERIATIM_HAS_SIMD 0
#elif HWY_ARCH_X86
#define SERIATIM_HAS_SIMD (HWY_TARGET <= HWY_AVX2)
#else
#define SERIATIM_HAS_SIMD 1
#endif

// The table of one family for the instruction set being compiled: its functions, or none where SERIATIM_HAS_SIMD is 0.
#undef SERIATIM_KERNEL_TABLE
#undef SERIATIM_NO_KERNEL_TABLE
#define SERIATIM_KERNEL_TABLE(Table, table, ...)                         \
  const Table* table() {                                                 \
    static const Table kTable{hwy::TargetName(HWY_TARGET), __VA_ARGS__}; \
    return &kTable;                                                      \
  }
#define SERIATIM_NO_KERNEL_TABLE(Table, table) \
  const Table* table() { return nullptr; }
