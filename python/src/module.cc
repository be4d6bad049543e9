// The extension module seriatim._core: converts, calls the library, translates errors. Nothing is computed here.
#include <nanobind/nanobind.h>

#include "bind.hpp"

NB_MODULE(_core, module) {
  using namespace seriatim::python;
  // What a program's own globals keep alive to the interpreter's end is no fault, and a library prints nothing.
  nanobind::set_leak_warnings(false);
  bind_engine(module);
  bind_device(module);
  bind_geometry(module);
  bind_score(module);
  bind_rule(module);
  bind_check(module);
  bind_layer(module);
  bind_transaction(module);
  bind_cache(module);
  bind_cache_file(module);
  bind_arrays_attend(module);
  bind_borrow(module);
  bind_shard(module);
}
