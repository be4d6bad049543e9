#include "plugin.hpp"

#include <ggml-backend-impl.h>
#include <ggml-impl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>

#include "backend.hpp"
#include "base/format.hpp"
#include "claims.hpp"
#include "counters.hpp"
#include "options.hpp"
#include "runs.hpp"
#include "seriatim/kernels.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

constexpr std::string_view kTestedVersions[] = {"0.25.3"};
constexpr const char* kName = "SERIATIM";

void say(ggml_log_level level, const std::string& line) { ggml_log_internal(level, "%s\n", line.c_str()); }

Backend& backend_of(ggml_backend_t backend) { return *static_cast<Backend*>(backend->context); }

// What the application asks of a context's backend.
void set_threads(ggml_backend_t backend, int threads) { backend_of(backend).set_threads(threads); }
void set_abort(ggml_backend_t backend, ggml_abort_callback callback, void* data) {
  backend_of(backend).set_abort({callback, data});
}
void print_counters() noexcept {
  try {
    say(GGML_LOG_LEVEL_INFO, counters_line());
  } catch (...) {  // no memory for the line
  }
}
// Eight numbers at most, in the order of Counters; gives how many there are.
std::size_t read_counters(std::uint64_t* numbers, std::size_t room) {
  const Counters& c = counters();
  const std::array<std::uint64_t, 8> all{c.top_k,  c.indexer,     c.attention,      c.pools,
                                         c.chains, c.row_entries, c.masked_entries, c.left_to_ggml};
  std::copy_n(all.begin(), std::min(room, all.size()), numbers);
  return all.size();
}

void free_backend(ggml_backend_t backend) {
  if (counters_wanted()) print_counters();
  delete static_cast<Backend*>(backend->context);
  delete backend;
}

ggml_guid_t guid() {
  static ggml_guid bytes = {0x5e, 0x71, 0xa7, 0x10, 0x3c, 0x88, 0x41, 0xd2,
                            0x9b, 0x06, 0xe4, 0x2f, 0x70, 0xbd, 0x95, 0x1a};
  return &bytes;
}

std::string what_is_taken() {
  const Options& taken = options();
  std::string what;
  const auto add = [&](bool is, const char* name) {
    if (is) what += (what.empty() ? "" : ", ") + std::string(name);
  };
  add(taken.top_k, "TOP_K");
  add(taken.indexer, "LIGHTNING_INDEXER");
  add(taken.attention, "FLASH_ATTN_EXT where a selection leaves few cells");
  add(taken.chains, "the chains of qwen4exp");
  return what;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) {
  try {
    auto context = std::make_unique<Backend>();
    auto backend = std::make_unique<ggml_backend>();
    backend->guid = guid();
    backend->iface.get_name = [](ggml_backend_t) { return kName; };
    backend->iface.free = free_backend;
    backend->iface.graph_compute = [](ggml_backend_t self, ggml_cgraph* graph) {
      return backend_of(self).compute(graph);
    };
    backend->iface.graph_optimize = [](ggml_backend_t self, ggml_cgraph* graph,
                                       ggml_backend_graph_optimize_params* params) {
      backend_of(self).optimize(graph, params);
    };
    backend->device = device;
    backend->context = context.release();
    say(GGML_LOG_LEVEL_INFO, formatted("seriatim: takes {} (kernels {})", what_is_taken(), default_kernels().name()));
    return backend.release();
  } catch (...) {
    return nullptr;
  }
}

void get_memory(ggml_backend_dev_t, size_t* free, size_t* total) { *free = *total = 0; }

void get_props(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
  props->name = device->iface.get_name(device);
  props->description = device->iface.get_description(device);
  props->type = device->iface.get_type(device);
  get_memory(device, &props->memory_free, &props->memory_total);
  props->caps = {};
  props->caps.buffer_from_host_ptr = true;
}

bool supports_op(ggml_backend_dev_t, const ggml_tensor* node) {
  if (is_view(node)) return true;
  try {
    return claims(node);
  } catch (...) {  // no memory to remember a cache by
    return false;
  }
}

ggml_backend_device_i device_interface() {
  ggml_backend_device_i iface{};
  iface.get_name = [](ggml_backend_dev_t) { return kName; };
  iface.get_description = [](ggml_backend_dev_t) { return "Seriatim: deterministic sparse attention"; };
  iface.get_memory = get_memory;
  iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; };
  iface.get_props = get_props;
  iface.init_backend = init_backend;
  // The CPU's own, so that nodes move over from the CPU and nothing is copied.
  iface.get_buffer_type = [](ggml_backend_dev_t) { return ggml_backend_cpu_buffer_type(); };
  iface.buffer_from_host_ptr = [](ggml_backend_dev_t, void* memory, size_t size, size_t) {
    return ggml_backend_cpu_buffer_from_ptr(memory, size);
  };
  iface.supports_op = supports_op;
  iface.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    return ggml_backend_buft_is_host(type);
  };
  return iface;
}

ggml_backend_dev_t get_device(ggml_backend_reg_t reg, size_t index) {
  static ggml_backend_device device{device_interface(), reg, nullptr};
  return index == 0 ? &device : nullptr;
}

void* get_proc_address(ggml_backend_reg_t, const char* name) {
  const std::string_view wanted(name);
  if (wanted == "ggml_backend_set_n_threads") return reinterpret_cast<void*>(set_threads);
  if (wanted == "ggml_backend_set_abort_callback") return reinterpret_cast<void*>(set_abort);
  if (wanted == "seriatim_print_counters") return reinterpret_cast<void*>(print_counters);
  if (wanted == "seriatim_join_slices") return reinterpret_cast<void*>(join_slices);
  if (wanted == "seriatim_read_counters") return reinterpret_cast<void*>(read_counters);
  return nullptr;
}

// Whether ggml's tensors and ops are those of the headers that this was compiled with.
bool is_same_layout() {
  constexpr std::size_t kObjectBytes = 32;  // what ggml keeps before each tensor
  return ggml_tensor_overhead() == kObjectBytes + GGML_TENSOR_SIZE &&
         std::strcmp(ggml_op_name(GGML_OP_TOP_K), "TOP_K") == 0 &&
         std::strcmp(ggml_op_name(GGML_OP_LIGHTNING_INDEXER), "LIGHTNING_INDEXER") == 0 &&
         std::strcmp(ggml_op_name(GGML_OP_FLASH_ATTN_EXT), "FLASH_ATTN_EXT") == 0;
}

std::string refusal() {
  if (!is_tested_version(ggml_version()) || !is_same_layout()) {
    std::string tested;
    for (const std::string_view version : kTestedVersions) tested += formatted(" {}", version);
    return formatted("ggml {} is not one that this was tested with ({} )", ggml_version(), tested);
  }
  const char* word = std::getenv("SERIATIM_GGML");
  if (word != nullptr && !options_named(word).has_value())
    return formatted("SERIATIM_GGML is '{}'; it is one of off, topk, attend and all", word);
  if (auto kernels = Kernels::chosen(); !kernels.ok()) return std::string(kernels.status().message());
  return {};
}

}  // namespace

bool is_tested_version(std::string_view version) {
  return std::find(std::begin(kTestedVersions), std::end(kTestedVersions), version) != std::end(kTestedVersions);
}

ggml_backend_reg_t registry() {
  static const std::string refused = refusal();
  if (!refused.empty()) {
    say(GGML_LOG_LEVEL_ERROR, formatted("seriatim: not loaded: {}", refused));
    return nullptr;
  }
  static ggml_backend_reg reg{
      GGML_BACKEND_API_VERSION,
      {[](ggml_backend_reg_t) { return kName; }, [](ggml_backend_reg_t) -> size_t { return options().none() ? 0 : 1; },
       get_device, get_proc_address},
      nullptr};
  return &reg;
}

}  // namespace seriatim::plugin

extern "C" {
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);
__attribute__((visibility("default"))) int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void) {
  try {
    return seriatim::plugin::registry();
  } catch (...) {
    return nullptr;
  }
}

int ggml_backend_score(void) { return 1; }
}
