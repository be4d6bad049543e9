#include "convert.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/format.hpp"

namespace seriatim::capi {
namespace {

// Fields share slots of 8 bytes, so a size that is no multiple of it would cut one.
constexpr std::size_t kSlotBytes = 8;
// No version will have a struct as large; a size past it was never set.
constexpr std::size_t kMostStructBytes = 4096;

Status check_struct(const char* name, const void* given) {
  if (given == nullptr) return invalid(name, "NULL");
  std::size_t bytes = 0;
  std::memcpy(&bytes, given, sizeof bytes);
  if (bytes >= kSlotBytes && bytes <= kMostStructBytes && bytes % kSlotBytes == 0) return {};
  return invalid(name, formatted("a struct_size of {}; was it initialised?", bytes).c_str());
}

std::size_t struct_bytes(const void* given) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, given, sizeof bytes);
  return bytes;
}

template <typename Byte>
Status take_view(const char* name, const seriatim_tensor* given, BasicTensor<Byte>& taken) {
  if (given == nullptr) return invalid(name, "NULL");
  if (given->dtype < SERIATIM_F32 || given->dtype > SERIATIM_I64)
    return invalid(name, formatted("{} is no dtype", given->dtype).c_str());
  if (given->rank < 0 || given->rank > kMaxRank)
    return invalid(name, formatted("a rank of {} is not in 0..{}", given->rank, kMaxRank).c_str());
  taken = {};
  taken.data = static_cast<Byte*>(given->data);
  taken.dtype = static_cast<DType>(given->dtype);
  taken.rank = given->rank;
  std::copy_n(given->shape, given->rank, taken.shape.begin());
  std::copy_n(given->stride_bytes, given->rank, taken.stride_bytes.begin());
  return {};
}

// Elements without memory: storage that was freed, a tensor that only describes.
template <typename Byte>
Status check_memory(const char* name, const BasicTensor<Byte>& taken) {
  const auto extents = std::span(taken.shape).first(static_cast<std::size_t>(taken.rank));
  if (taken.data != nullptr || std::ranges::find(extents, 0) != extents.end()) return {};
  return invalid(name, "has extents, and its data is NULL");
}

}  // namespace

Status invalid(const char* argument, const char* what) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what));
}

Status in_ask(std::int64_t ask, const Status& failure) {
  return Status::error(failure.code(), failure.argument(), failure.message(),
                       {failure.place().row, failure.place().index, ask});
}

Status take_bytes(const char* name, const void* given, void* taken, std::size_t taken_bytes) {
  if (Status s = check_struct(name, given); !s.ok()) return s;
  const std::size_t given_bytes = struct_bytes(given);
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = taken_bytes; i < given_bytes; ++i) {
    if (bytes[i] == 0) continue;
    return Status::error(Code::kUnsupported, name,
                         formatted("{}: byte {} is set, of a field that this version does not know", name, i),
                         {-1, static_cast<std::int64_t>(i)});
  }
  const std::size_t size_bytes = sizeof(std::size_t);  // that one stays this version's own
  std::memcpy(static_cast<unsigned char*>(taken) + size_bytes, bytes + size_bytes,
              std::min(given_bytes, taken_bytes) - size_bytes);
  return {};
}

Status check_output_bytes(const char* name, const void* out) { return check_struct(name, out); }

void give_bytes(void* out, const void* value, std::size_t value_bytes) {
  const std::size_t out_bytes = struct_bytes(out);
  const std::size_t size_bytes = sizeof(std::size_t);
  auto* to = static_cast<unsigned char*>(out);
  const std::size_t known = std::min(out_bytes, value_bytes);
  std::memcpy(to + size_bytes, static_cast<const unsigned char*>(value) + size_bytes, known - size_bytes);
  std::fill(to + known, to + out_bytes, static_cast<unsigned char>(0));
}

static_assert(SERIATIM_F32 == static_cast<int>(DType::kF32) && SERIATIM_BF16 == static_cast<int>(DType::kBf16));
static_assert(SERIATIM_F16 == static_cast<int>(DType::kF16) && SERIATIM_I32 == static_cast<int>(DType::kI32));
static_assert(SERIATIM_I64 == static_cast<int>(DType::kI64));
static_assert(kMaxRank == 4);

Status take_tensor(const char* name, const seriatim_tensor* given, ConstTensor& taken) {
  if (Status s = take_view(name, given, taken); !s.ok()) return s;
  return check_memory(name, taken);
}
Status take_tensor(const char* name, const seriatim_tensor* given, Tensor& taken) {
  if (Status s = take_view(name, given, taken); !s.ok()) return s;
  return check_memory(name, taken);
}

Status take_layout(const char* name, const seriatim_tensor* given, ConstTensor& taken) {
  return take_view(name, given, taken);
}

Status check_array(const char* name, const void* data, std::int64_t count, std::size_t element_bytes) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(element_bytes);
  if (count < 0 || count > most) return invalid(name, formatted("a count of {}", count).c_str());
  if (data == nullptr && count > 0) return invalid(name, formatted("NULL with a count of {}", count).c_str());
  return {};
}

Status take_flag(const char* name, std::int32_t given, bool& taken) {
  if (Status s = check_choice(name, given, 1); !s.ok()) return s;
  taken = given == 1;
  return {};
}

Status check_choice(const char* name, std::int32_t given, std::int32_t last) {
  return given >= 0 && given <= last ? Status() : invalid(name, formatted("{} is not in 0..{}", given, last).c_str());
}

Status check_reserved(const char* name, std::int32_t given) {
  if (given == 0) return {};
  return Status::error(Code::kUnsupported, name,
                       formatted("{}: reserved is {}, which this version does not know", name, given));
}

static_assert(SERIATIM_NAN_REFUSE == static_cast<int>(NanPolicy::kRefuse));
static_assert(SERIATIM_NAN_EXCLUDE == static_cast<int>(NanPolicy::kExclude));

Status take_nan_policy(std::int32_t given, NanPolicy& taken) {
  if (Status s = check_choice("nan_policy", given, SERIATIM_NAN_EXCLUDE); !s.ok()) return s;
  taken = static_cast<NanPolicy>(given);
  return {};
}

Status take_kernels(const char* name, Kernels& taken) {
  if (name == nullptr) return {};
  const auto kernels = Kernels::named(name);
  if (!kernels.ok()) return kernels.status();
  taken = *kernels;
  return {};
}

}  // namespace seriatim::capi
