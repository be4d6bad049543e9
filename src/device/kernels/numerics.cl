// Elements by their dtype. The conversions themselves, and exp, log, sine and cosine, are src/base/shared's.

FN i64 bytes_of(i32 dtype) { return dtype == DTYPE_F32 ? 4 : 2; }

FN f32 load_as(i32 dtype, GLOBAL const u8* at) {
  if (dtype == DTYPE_F32) return *(GLOBAL const f32*)at;
  return dtype == DTYPE_BF16 ? from_bf16(*(GLOBAL const u16*)at) : from_f16(*(GLOBAL const u16*)at);
}

FN void store_as(i32 dtype, GLOBAL u8* at, f32 value) {
  if (dtype == DTYPE_F32) {
    *(GLOBAL f32*)at = value;
  } else {
    *(GLOBAL u16*)at = dtype == DTYPE_BF16 ? to_bf16(value) : to_f16(value);
  }
}

FN f32 round_as(i32 dtype, f32 value) {
  if (dtype == DTYPE_F32) return value;
  return dtype == DTYPE_BF16 ? from_bf16(to_bf16(value)) : from_f16(to_f16(value));
}
