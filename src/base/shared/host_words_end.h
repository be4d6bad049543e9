// Takes the words of host_words.h back.
#undef i32
#undef u16
#undef u32
#undef u64
#undef f32
#undef f64
#undef FN
#undef TABLE
#undef FMA32
#undef BITS_OF
#undef FLOAT_OF
#undef BITS_OF_DOUBLE
#undef DOUBLE_OF
