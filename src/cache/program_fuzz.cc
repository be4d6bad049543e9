// Any bytes are a program of cache operations; it must agree with the plain definition.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "support/cache_program.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace seriatim::cache_testing;
  if (const auto failure = run(decode({data, size}), "")) {
    std::fprintf(stderr, "%s\n", text(*failure).c_str());
    std::abort();
  }
  return 0;
}
