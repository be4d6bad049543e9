// Any bytes at all: refused, or a file whose every view holds together.
#include <cstdint>
#include <cstdlib>

#include "file/consistent.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const seriatim::Result<seriatim::SafetensorsFile> file = seriatim::SafetensorsFile::parse(bytes);
  if (file.ok() ? !seriatim::file::consistent(*file, bytes) : file.status().ok()) std::abort();
  return 0;
}
