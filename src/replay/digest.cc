#include "replay/digest.hpp"

#include "base/format.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace seriatim {

std::string digest(std::initializer_list<std::span<const std::byte>> parts) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const auto& part : parts) XXH3_128bits_update(&state, part.data(), part.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return formatted("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace seriatim
