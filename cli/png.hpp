// Indexed images as PNG.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace seriatim::cli {

struct Colour {
  std::uint8_t red, green, blue, alpha;
};

// Takes   pixels [height, width], each below palette.size()
// Gives   the file's bytes; the same for the same input and zlib. Empty if zlib finds no memory.
std::string png_of(std::span<const std::uint8_t> pixels, std::uint32_t width, std::uint32_t height,
                   std::span<const Colour> palette);

std::string base64(std::string_view bytes);

}  // namespace seriatim::cli
