#include "torch_tensors.hpp"

#include <nanobind/stl/string.h>

#include <atomic>
#include <optional>
#include <string>

#include "array_kinds.hpp"
#include "errors.hpp"

namespace seriatim::python {

namespace {

// Why a tensor cannot be read, asked once that is known.
std::string fault_of(nb::handle tensor) {
  const auto is = [&](const char* what) { return nb::cast<bool>(tensor.attr(what)); };
  try {
    if (!is("is_cpu")) return "memory of a device; move it to the CPU first";
    if (is("is_nested")) return "a nested tensor; pass a padded one";
    const std::string layout = nb::cast<std::string>(nb::str(nb::object(tensor.attr("layout"))));
    if (layout != "torch.strided") return "its layout is " + layout + "; pass tensor.to_dense()";
  } catch (nb::python_error&) {
  }
  return "has no memory of its own, as within vmap or grad of torch.func";
}

[[noreturn]] void refuse_kind(nb::handle tensor, const char* argument) {
  const std::string name = nb::cast<std::string>(nb::str(tensor.type().attr("__name__")));
  if (name == "FakeTensor") refuse(argument, "a FakeTensor, which has no memory; leave FakeTensorMode first");
  refuse(argument,
         "a " + name + ", whose meaning beyond its elements would be dropped; pass tensor.as_subclass(torch.Tensor)");
}

// Tracers see torch's own operations alone; to them a result of ours is a constant.
void refuse_tracers(const Torch& torch, const char* argument) {
  bool traces = nb::cast<bool>(torch.is_tracing());
  if (!traces && nb::cast<std::int64_t>(torch.dispatch_modes()) > 0) {
    const nb::module_ proxies = nb::module_::import_("torch.fx.experimental.proxy_tensor");
    traces = !nb::object(proxies.attr("get_proxy_mode")()).is_none();
  }
  if (traces)
    refuse(argument, "torch.jit.trace and make_fx would keep this call's result as a constant; call it outside");
}

bool carries_tangent(const Torch& torch, nb::handle tensor) {
  if (nb::cast<std::int64_t>(nb::object(torch.forward_ad.attr("_current_level"))) < 0) return false;
  return !nb::object(torch.forward_ad.attr("unpack_dual")(tensor).attr("tangent")).is_none();
}

std::optional<DType> dtype_of(const Torch& torch, nb::handle tensor) {
  const nb::object dtype = tensor.attr("dtype");
  for (std::size_t i = 0; i < torch.dtypes.size(); ++i) {
    if (dtype.is(torch.dtypes[i])) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// Bytes from the first element to the end of the last; absent past 64 bits. 0: no elements.
std::optional<std::int64_t> reach_of(const ConstTensor& view) {
  std::int64_t reach = dtype_bytes(view.dtype);
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    std::int64_t along = 0;
    if (view.shape[axis] == 0) return 0;
    if (__builtin_mul_overflow(view.shape[axis] - 1, view.stride_bytes[axis], &along)) return std::nullopt;
    if (__builtin_add_overflow(reach, along, &reach)) return std::nullopt;
  }
  return reach;
}

// Whether the storage has the memory that the view shows: extents outlive it where it was freed or cut.
bool storage_holds(nb::handle tensor, const ConstTensor& view) {
  const std::optional<std::int64_t> reach = reach_of(view);
  if (reach == 0) return true;
  if (!reach || view.data == nullptr) return false;
  const nb::object storage = tensor.attr("untyped_storage")();
  const auto bytes = nb::cast<std::int64_t>(storage.attr("nbytes")());
  const auto offset = nb::cast<std::int64_t>(tensor.attr("storage_offset")());
  return *reach <= bytes && offset <= (bytes - *reach) / dtype_bytes(view.dtype);
}

ConstTensor shape_of(nb::handle tensor, const char* argument, DType dtype) {
  ConstTensor view;
  view.dtype = dtype;
  const nb::object sizes = tensor.attr("shape");
  const nb::object strides = tensor.attr("stride")();
  const auto rank = PyTuple_Size(sizes.ptr());
  if (rank < 0) throw nb::python_error();
  if (rank > kMaxRank)
    refuse(argument, "has " + std::to_string(rank) + " axes, at most " + std::to_string(kMaxRank) + " fit");
  view.rank = static_cast<int>(rank);
  for (Py_ssize_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<std::size_t>(i);
    view.shape[axis] = nb::cast<std::int64_t>(nb::handle(PyTuple_GetItem(sizes.ptr(), i)));
    const auto stride = nb::cast<std::int64_t>(nb::handle(PyTuple_GetItem(strides.ptr(), i)));
    if (view.shape[axis] > 1 && __builtin_mul_overflow(stride, dtype_bytes(dtype), &view.stride_bytes[axis]))
      refuse(argument, "axis " + std::to_string(axis) + " has a stride past 64 bits");
  }
  return view;
}

ConstTensor admitted(nb::handle tensor, const char* argument, Gradient gradient) {
  const Torch* const known = torch();
  if (known == nullptr || !nb::isinstance(tensor, known->tensor_type)) refuse(argument, "a torch tensor is needed");
  if (!tensor.type().is(known->tensor_type) && !tensor.type().is(known->parameter_type)) refuse_kind(tensor, argument);
  if (!nb::cast<bool>(tensor.attr("is_cpu")) || nb::cast<bool>(tensor.attr("is_nested")) ||
      !nb::object(tensor.attr("layout")).is(known->strided))
    refuse(argument, fault_of(tensor));
  if (nb::cast<bool>(tensor.attr("is_neg")()))
    refuse(argument, "its negative bit is set, so that memory holds the other signs; pass tensor.resolve_neg()");
  if (gradient == Gradient::kRefused && nb::cast<bool>(tensor.attr("requires_grad")))
    refuse(argument, "a tensor that requires a gradient; pass tensor.detach()");
  if (carries_tangent(*known, tensor)) refuse(argument, "a tensor that carries a tangent; pass tensor.detach()");
  refuse_tracers(*known, argument);
  const std::optional<DType> dtype = dtype_of(*known, tensor);
  if (!dtype) refuse(argument, "its dtype is none of float32, bfloat16, float16, int32 and int64");
  ConstTensor view = shape_of(tensor, argument, *dtype);
  bool holds = false;
  try {
    view.data = reinterpret_cast<const std::byte*>(nb::cast<std::uintptr_t>(nb::object(tensor.attr("data_ptr")())));
    holds = storage_holds(tensor, view);
  } catch (nb::python_error&) {
    refuse(argument, fault_of(tensor));
  }
  if (!holds) refuse(argument, "has extents and no memory for them: its storage was freed or never made");
  settle(view);
  return view;
}

}  // namespace

Torch::Torch(nb::handle module) {
  tensor_type = module.attr("Tensor");
  parameter_type = module.attr("nn").attr("Parameter");
  strided = module.attr("strided");
  empty = module.attr("empty");
  is_tracing = module.attr("jit").attr("is_tracing");
  dispatch_modes = module.attr("_C").attr("_len_torch_dispatch_stack");
  forward_ad = module.attr("autograd").attr("forward_ad");
  increment_version = module.attr("autograd").attr("graph").attr("increment_version");
  const char* const names[] = {"float32", "bfloat16", "float16", "int32", "int64"};
  for (std::size_t i = 0; i < dtypes.size(); ++i) dtypes[i] = module.attr(names[i]);
}

const Torch* torch() {
  static std::atomic<const Torch*> known{nullptr};
  if (const Torch* const found = known.load()) return found;
  PyObject* const module = PyImport_GetModule(nb::str("torch").ptr());
  if (module == nullptr) PyErr_Clear();
  const nb::object held = nb::steal(module);
  if (!held.is_valid() || !nb::hasattr(held, "autograd") || !nb::hasattr(held, "nn") || !nb::hasattr(held, "jit"))
    return nullptr;
  // Two threads may both look; the later's stays, the other's is a few handles. A lock here would be held while an
  // import lets go of the interpreter's.
  const Torch* const made = new Torch(held);
  known.store(made);
  return made;
}

template <>
ConstTensor torch_view(nb::handle tensor, const char* argument, Gradient gradient) {
  return tensor.is_none() ? ConstTensor{} : admitted(tensor, argument, gradient);
}

template <>
Tensor torch_view(nb::handle tensor, const char* argument, Gradient gradient) {
  if (tensor.is_none()) return {};
  const ConstTensor view = admitted(tensor, argument, gradient);
  return {const_cast<std::byte*>(view.data), view.dtype, view.rank, view.shape, view.stride_bytes};
}

void announce_write(nb::handle tensor) { torch()->increment_version(tensor); }

}  // namespace seriatim::python
