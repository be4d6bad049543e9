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
