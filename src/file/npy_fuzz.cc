// Any bytes at all: refused, or an array whose view holds together.
#include <cstdint>
#include <cstdlib>

#include "file/consistent.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const seriatim::Result<seriatim::NpyArray> array = seriatim::NpyArray::parse(bytes);
  if (array.ok() ? !seriatim::file::consistent(*array, bytes) : array.status().ok()) std::abort();
  return 0;
}
