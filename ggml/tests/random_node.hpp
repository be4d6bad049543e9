// A node made of bytes: any op that the backend knows, of any types, extents and strides, and what happens to it.
#pragma once

#include <cstdint>
#include <span>

namespace seriatim::plugin::testing {

enum class Fate { kDeclined, kComputed, kLeft };

// Every tensor of the node has memory for what its extents and strides reach, and no more. Crashes where the backend
// reads or writes past it, or trusts a shape that it did not look at.
Fate run_random_node(std::span<const std::uint8_t> bytes);

}  // namespace seriatim::plugin::testing
