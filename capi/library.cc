#include <string>
#include <vector>

#include "base/checked.hpp"
#include "call.hpp"
#include "convert.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Kernels& kernels : Kernels::available()) all.push_back(kernels.name());
    return all;
  }();
  return names;
}

}  // namespace

const char* seriatim_version(void) { return SERIATIM_VERSION; }

const char* seriatim_kernels_name(std::int64_t index) {
  try {
    const auto& names = kernel_names();
    return index >= 0 && index < static_cast<std::int64_t>(names.size())
               ? names[static_cast<std::size_t>(index)].c_str()
               : nullptr;
  } catch (...) {  // no memory for the names; a later call tries again
    return nullptr;
  }
}

seriatim_status seriatim_kernels_chosen(const char** name, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"name", name}}); !s.ok()) return s;
    const auto chosen = Kernels::chosen();
    if (!chosen.ok()) return chosen.status();
    const std::string wanted = chosen->name();
    for (const std::string& known : kernel_names()) {
      if (known == wanted) *name = known.c_str();
    }
    return {};
  });
}

seriatim_status seriatim_tensor_dense(void* data, std::int32_t dtype, std::int32_t rank, const std::int64_t* shape,
                                      seriatim_tensor* tensor, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"tensor", tensor}}); !s.ok()) return s;
    if (Status s = check_choice("dtype", dtype, SERIATIM_I64); !s.ok()) return s;
    if (Status s = check_choice("rank", rank, kMaxRank); !s.ok()) return s;
    if (Status s = check_array("shape", shape, rank, sizeof *shape); !s.ok()) return s;
    seriatim_tensor dense{data, dtype, rank, {1, 1, 1, 1}, {0, 0, 0, 0}};
    std::int64_t stride_bytes = dtype_bytes(static_cast<DType>(dtype));
    for (std::int32_t axis = rank - 1; axis >= 0; --axis) {
      if (shape[axis] < 0)
        return Status::error(Code::kInvalidArgument, "shape", "shape: a negative extent", {-1, axis});
      dense.shape[axis] = shape[axis];
      dense.stride_bytes[axis] = stride_bytes;
      const auto next = checked_mul(stride_bytes, shape[axis]);
      if (!next) return Status::error(Code::kOverflow, "shape", "shape: bytes past 64 bits", {-1, axis});
      stride_bytes = *next;
    }
    *tensor = dense;
    return {};
  });
}
