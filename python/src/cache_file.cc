// Binds what can be asked of a saved cache without making one.
#include "seriatim/cache_file.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bind.hpp"
#include "docs.hpp"
#include "errors.hpp"
#include "paths.hpp"
#include "unlocked.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace seriatim::python {

namespace {

void verify(nb::handle path) {
  const std::string name = path_of(path);
  const Status status = [&] {
    const Unlocked unlocked;
    return verify_cache_file(name);
  }();
  check(status);
}

CacheFileInfo info_of(nb::handle path) {
  const std::string name = path_of(path);
  return value([&] {
    const Unlocked unlocked;
    return read_cache_file(name);
  }());
}

nb::dict sequences_of(const CacheFileInfo& self) {
  nb::dict sequences;
  for (const CacheFileInfo::Sequence& one : self.sequences)
    sequences[nb::cast(one.id)] = nb::make_tuple(one.run.anchor, one.run.tokens);
  return sequences;
}

std::string repr(const CacheFileInfo& self) {
  return "CacheFileInfo(sequences=" + std::to_string(self.sequences.size()) +
         ", layers=" + std::to_string(self.options.layers.size()) +
         ", token_pages=" + std::to_string(self.token_pages) + ", pooled_pages=" + std::to_string(self.pooled_pages) +
         ", file_bytes=" + std::to_string(self.file_bytes) + ")";
}

}  // namespace

void bind_cache_file(nb::module_& module) {
  nb::class_<CacheFileInfo>(module, "CacheFileInfo", docs::kCacheFileInfo)
      .def_prop_ro(
          "geometry", [](const CacheFileInfo& self) { return self.geometry; },
          "What the file says of it; the rest (query heads, budget) has its default or fits.")
      .def_prop_ro("layers", [](const CacheFileInfo& self) { return self.options.layers.size(); })
      .def_prop_ro(
          "page_tokens", [](const CacheFileInfo& self) { return self.options.page_tokens; }, "Tokens of a page.")
      .def_prop_ro("sequences", &sequences_of, nb::sig("def sequences(self) -> dict[int, tuple[int, int]]"),
                   "Anchor and tokens of each sequence by the id that it had, in the file's order.")
      .def_ro("token_pages", &CacheFileInfo::token_pages, "Pages of keys, values and raw index keys.")
      .def_ro("pooled_pages", &CacheFileInfo::pooled_pages, "Pages of pooled keys.")
      .def_ro("token_page_bytes", &CacheFileInfo::token_page_bytes)
      .def_ro("pooled_page_bytes", &CacheFileInfo::pooled_page_bytes)
      .def_ro("file_bytes", &CacheFileInfo::file_bytes)
      .def_ro("mappable", &CacheFileInfo::mappable, "Whether restore can map it.")
      .def("__repr__", &repr);
  module.def("cache_file_info", &info_of, "path"_a,
             nb::sig("def cache_file_info(path: seriatim._types.Path) -> CacheFileInfo"), docs::kCacheFileInfoOf);
  module.def("verify_cache_file", &verify, "path"_a,
             nb::sig("def verify_cache_file(path: seriatim._types.Path) -> None"), docs::kVerify);
}

}  // namespace seriatim::python
