// The words of the shared texts for the host's compiler; src/device/kernels/dialect.cl has them for the devices'.
// Around every include of such a text: host_words.h before it, host_words_end.h behind it, both inside namespace
// seriatim.
#define i32 std::int32_t
#define u16 std::uint16_t
#define u32 std::uint32_t
#define u64 std::uint64_t
#define f32 float
#define f64 double
#define FN inline
#define TABLE inline constexpr
#define FMA32(a, b, c) fma32(a, b, c)
#define BITS_OF(x) std::bit_cast<std::uint32_t>(x)
#define FLOAT_OF(x) std::bit_cast<float>(x)
#define BITS_OF_DOUBLE(x) std::bit_cast<std::uint64_t>(x)
#define DOUBLE_OF(x) std::bit_cast<double>(x)
