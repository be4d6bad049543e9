// Any bytes are a capture or a Status; what is admitted replays without a fault.
#include <span>

#include "seriatim/replay.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto capture = seriatim::Capture::parse(std::as_bytes(std::span(data, size)));
  if (!capture.ok()) return 0;
  const auto& g = capture->geometry;
  // A few bytes may ask for heads and dims that would take hours.
  if (g.row_capacity() > 1 << 16 || capture->tokens() * g.query_heads() * g.index_heads() > 1 << 16) return 0;
  const auto done = seriatim::replay(*capture);
  if (done.ok() && done->queries != static_cast<std::int64_t>(capture->query_positions.size())) __builtin_trap();
  return 0;
}
