#include "png.hpp"

#include <zlib.h>

#include <vector>

namespace seriatim::cli {
namespace {

void append_big_endian(std::string& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift & 0xffu);
}

// Length, name, data, CRC of name and data.
void append_chunk(std::string& to, std::string_view name, std::string_view data) {
  append_big_endian(to, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = to.size();
  to.append(name).append(data);
  append_big_endian(to, static_cast<std::uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(to.data() + begin),
                                                           static_cast<uInt>(to.size() - begin))));
}

// Every line behind its filter byte, 0: none.
std::string deflated(std::span<const std::uint8_t> pixels, std::uint32_t width) {
  std::string lines;
  for (std::size_t at = 0; at < pixels.size(); at += width) {
    lines += '\0';
    lines.append(reinterpret_cast<const char*>(pixels.data() + at), width);
  }
  uLongf size = ::compressBound(lines.size());
  std::string packed(size, '\0');
  if (::compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(lines.data()),
                  lines.size(), Z_BEST_COMPRESSION) != Z_OK)
    return {};
  packed.resize(size);
  return packed;
}

}  // namespace

std::string png_of(std::span<const std::uint8_t> pixels, std::uint32_t width, std::uint32_t height,
                   std::span<const Colour> palette) {
  const std::string packed = deflated(pixels, width);
  if (packed.empty()) return {};
  std::string header;
  append_big_endian(header, width);
  append_big_endian(header, height);
  header += {8, 3, 0, 0, 0};  // bits per pixel, indexed, deflate, filters by line, not interlaced
  std::string colours;
  std::string alphas;
  for (const Colour& colour : palette) {
    for (const std::uint8_t part : {colour.red, colour.green, colour.blue}) colours += static_cast<char>(part);
    alphas += static_cast<char>(colour.alpha);
  }
  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "PLTE", colours);
  append_chunk(png, "tRNS", alphas);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", {});
  return png;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::string_view part = bytes.substr(at, 3);
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 3; ++i) word = word << 8 | (i < part.size() ? static_cast<std::uint8_t>(part[i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) text += i > part.size() ? '=' : kDigits[word >> (18 - 6 * i) & 63u];
  }
  return text;
}

}  // namespace seriatim::cli
