// libFuzzer: any bytes as a node.
#include "random_node.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  seriatim::plugin::testing::run_random_node({data, size});
  return 0;
}
