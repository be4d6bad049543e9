// A digest of bytes, for telling at a glance whether two results are the same.
#pragma once

#include <span>
#include <string>

namespace seriatim {

// XXH3-128 of the parts one after the other, in hexadecimal.
std::string digest(std::initializer_list<std::span<const std::byte>> parts);

}  // namespace seriatim
