// Binds BorrowedLayer for python/seriatim/transformers. Torch tensors are read through their own attributes, because
// one decode step passes some ten of them and DLPack would cost more than its work.
#include "bind_borrowed_layer.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "borrowed_layer.hpp"
#include "errors.hpp"
#include "torch_tensors.hpp"
#include "unlocked.hpp"

namespace nb = nanobind;

namespace seriatim::python {
namespace {

DType dtype_named(const std::string& name) {
  if (name == "f32" || name == "torch.float32") return DType::kF32;
  if (name == "bf16" || name == "torch.bfloat16") return DType::kBf16;
  if (name == "f16" || name == "torch.float16") return DType::kF16;
  if (name == "i32" || name == "torch.int32") return DType::kI32;
  if (name == "i64" || name == "torch.int64") return DType::kI64;
  throw nb::type_error(("dtype " + name + " is not one of f32, bf16, f16, i32, i64").c_str());
}

ConstTensor read(nb::handle tensor, const char* argument) {
  return torch_view<const std::byte>(tensor, argument, Gradient::kIgnored);
}

Tensor write(nb::handle tensor, const char* argument) {
  return torch_view<std::byte>(tensor, argument, Gradient::kRefused);
}

ScaleAt scale_named(const std::string& name) {
  if (name == "after_sum") return ScaleAt::kAfterSum;
  if (name == "before_relu") return ScaleAt::kBeforeRelu;
  if (name == "after_relu") return ScaleAt::kAfterRelu;
  if (name == "nowhere") return ScaleAt::kNowhere;
  throw nb::value_error("scale_at is not one of after_sum, before_relu, after_relu, nowhere");
}

GeometryOptions options_of(const nb::dict& given) {
  GeometryOptions options;
  for (const auto [key, value] : given) {
    const std::string name = nb::cast<std::string>(key);
    if (name == "group_tokens")
      options.group_tokens = nb::cast<std::int64_t>(value);
    else if (name == "budget_tokens")
      options.budget_tokens = nb::cast<std::int64_t>(value);
    else if (name == "query_heads")
      options.query_heads = nb::cast<std::int64_t>(value);
    else if (name == "kv_heads")
      options.kv_heads = nb::cast<std::int64_t>(value);
    else if (name == "head_dim")
      options.head_dim = nb::cast<std::int64_t>(value);
    else if (name == "value_dim")
      options.value_dim = nb::cast<std::int64_t>(value);
    else if (name == "values_alias_keys")
      options.values_alias_keys = nb::cast<bool>(value);
    else if (name == "softmax_scale")
      options.softmax_scale = nb::cast<float>(value);
    else if (name == "index_heads")
      options.index_heads = nb::cast<std::int64_t>(value);
    else if (name == "index_dim")
      options.index_dim = nb::cast<std::int64_t>(value);
    else if (name == "index_rotary_dim")
      options.index_rotary_dim = nb::cast<std::int64_t>(value);
    else if (name == "inv_freq")
      options.inv_freq = nb::cast<std::vector<float>>(value);
    else if (name == "rope_axes")
      options.rope_axes = nb::cast<std::vector<std::uint8_t>>(value);
    else if (name == "norm_eps")
      options.norm_eps = nb::cast<float>(value);
    else if (name == "finished_keys")
      options.pooling = nb::cast<bool>(value) ? Pooling::kNone : Pooling::kMean;
    else if (name == "relu")
      options.relu = nb::cast<bool>(value);
    else if (name == "scale_at")
      options.scale_at = scale_named(nb::cast<std::string>(value));
    else if (name == "kv_dtype")
      options.kv_dtype = dtype_named(nb::cast<std::string>(value));
    else if (name == "index_dtype")
      options.index_dtype = dtype_named(nb::cast<std::string>(value));
    else
      throw nb::type_error((name + " is no option of a geometry").c_str());
  }
  return options;
}

using Places = std::vector<std::int64_t>;

// nanobind cannot name the abstract Executor; a pool of threads that layers share.
struct Threads {
  int asked;
  std::shared_ptr<Executor> executor;
};

void make_threads(Threads* self, int asked) {
  std::shared_ptr<Executor> executor = make_executor(asked);
  if (executor == nullptr) throw std::bad_alloc();
  new (self) Threads{asked, std::move(executor)};
}

std::unique_ptr<BorrowedLayer> make_layer(const nb::dict& geometry, std::vector<float> norm_weight,
                                          const Threads& threads, const std::optional<std::string>& kernels) {
  Kernels chosen = default_kernels();
  if (kernels) {
    Result<Kernels> named = Kernels::named(*kernels);
    check(named.status());
    chosen = *named;
  }
  Result<std::unique_ptr<BorrowedLayer>> layer =
      BorrowedLayer::create(options_of(geometry), std::move(norm_weight), threads.executor, chosen);
  check(layer.status());
  return std::move(*layer);
}

float pool(BorrowedLayer& layer, const Places& first, const Places& last, const Places& pooled_groups, nb::handle raw,
           nb::handle coordinates, nb::handle panels) {
  const PoolCall call{
      {first, last}, pooled_groups, read(raw, "raw"), read(coordinates, "coordinates"), write(panels, "panels")};
  Result<float> largest = [&] {
    const Unlocked unlocked;
    return layer.pool(call);
  }();
  check(largest.status());
  return *largest;
}

void attend(BorrowedLayer& layer, const Places& first, const Places& last, nb::handle queries, nb::handle index_queries,
            nb::handle keys, nb::handle values, nb::handle panels, float panels_max_abs, nb::handle output,
            nb::handle head_weights, nb::handle lse, nb::handle rows, nb::handle counts) {
  const AttendCall call{{first, last},
                        read(queries, "queries"),
                        read(index_queries, "index_queries"),
                        read(head_weights, "head_weights"),
                        read(keys, "keys"),
                        read(values, "values"),
                        read(panels, "panels"),
                        panels_max_abs,
                        write(output, "output"),
                        write(lse, "lse"),
                        write(rows, "rows"),
                        write(counts, "counts")};
  const Status status = [&] {
    const Unlocked unlocked;
    return layer.attend(call);
  }();
  check(status);
}

void plan(BorrowedLayer& layer, const Places& first, const Places& last, std::int64_t slots, nb::handle index_queries,
          nb::handle panels, float panels_max_abs, nb::handle rows, nb::handle head_weights) {
  const PlanCall call{{first, last},
                      slots,
                      read(index_queries, "index_queries"),
                      read(head_weights, "head_weights"),
                      read(panels, "panels"),
                      panels_max_abs,
                      write(rows, "rows")};
  check([&] {
    const Unlocked unlocked;
    return layer.plan(call);
  }());
}

void attend_rows(BorrowedLayer& layer, const Places& first, const Places& last, nb::handle queries, nb::handle keys,
                 nb::handle output, nb::handle values, nb::handle rows, const std::vector<float>& sinks) {
  const RowsCall call{{first, last},          read(queries, "queries"), read(keys, "keys"),
                      read(values, "values"), read(rows, "rows"),       sinks,
                      write(output, "output")};
  check([&] {
    const Unlocked unlocked;
    return layer.attend_rows(call);
  }());
}

}  // namespace

void bind_borrowed_layer(nb::module_& module) {
  nb::class_<Threads>(module, "Threads", "The threads that layers share. Results never depend on their number.")
      .def("__init__", &make_threads, nb::arg("threads") = 0)
      .def(
          "__getstate__", [](const Threads& self) { return self.asked; },
          "How many were asked for: made anew elsewhere.")
      .def(
          "__setstate__", [](Threads& self, int asked) { make_threads(&self, asked); }, nb::arg("asked"))
      .def_prop_ro("concurrency", [](const Threads& self) { return self.executor->concurrency(); });
  nb::class_<BorrowedLayer>(
      module, "BorrowedLayer",
      "An indexed layer over torch tensors that a model's cache keeps; for seriatim.transformers.")
      .def(nb::new_(&make_layer), nb::arg("geometry"), nb::arg("norm_weight"), nb::arg("threads"),
           nb::arg("kernels") = nb::none())
      .def_prop_ro("row_capacity", [](const BorrowedLayer& self) { return self.geometry().row_capacity(); })
      .def("pool", &pool, nb::arg("first"), nb::arg("last"), nb::arg("pooled_groups"), nb::arg("raw"),
           nb::arg("coordinates").none(), nb::arg("panels"))
      .def("attend", &attend, nb::arg("first"), nb::arg("last"), nb::arg("queries"), nb::arg("index_queries"),
           nb::arg("keys"), nb::arg("values").none(), nb::arg("panels"), nb::arg("panels_max_abs"), nb::arg("output"),
           nb::arg("head_weights") = nb::none(), nb::arg("lse") = nb::none(), nb::arg("rows") = nb::none(),
           nb::arg("counts") = nb::none())
      .def("plan", &plan, nb::arg("first"), nb::arg("last"), nb::arg("slots"), nb::arg("index_queries"),
           nb::arg("panels"), nb::arg("panels_max_abs"), nb::arg("rows"), nb::arg("head_weights") = nb::none())
      .def("attend_rows", &attend_rows, nb::arg("first"), nb::arg("last"), nb::arg("queries"), nb::arg("keys"),
           nb::arg("output"), nb::arg("values") = nb::none(), nb::arg("rows") = nb::none(),
           nb::arg("sinks") = std::vector<float>());
  module.def(
      "check_finite",
      [](const std::string& argument, nb::handle tensor) {
        ConstTensor view = read(tensor, argument.c_str());
        while (view.rank < kMaxRank) {  // leading axes of one element
          for (std::size_t axis = kMaxRank - 1; axis > 0; --axis) {
            view.shape[axis] = view.shape[axis - 1];
            view.stride_bytes[axis] = view.stride_bytes[axis - 1];
          }
          view.shape[0] = 1;
          ++view.rank;
        }
        check([&] {
          const Unlocked unlocked;
          return check_finite(argument, view);
        }());
      },
      nb::arg("argument"), nb::arg("tensor"));
}

}  // namespace seriatim::python
