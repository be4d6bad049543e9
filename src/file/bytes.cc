#include "file/bytes.hpp"

#include <array>
#include <cstdint>

namespace seriatim::file {
namespace {

// The character at the front and how many bytes it takes; none: they are not UTF-8.
struct Decoded {
  std::uint32_t character = 0;
  std::size_t bytes = 0;
};

Decoded decode(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t character = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    character = character << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = character >= 0xD800 && character < 0xE000;
  if (character < kLeast[bytes] || character > 0x10FFFF || surrogate) return {};
  return {character, bytes};
}

bool is_obeyed(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

void append_escape(std::string& to, char kind, std::uint32_t value, int digits) {
  to += '\\';
  to += kind;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) to += "0123456789abcdef"[value >> shift & 0xFU];
}

}  // namespace

std::string printable(std::string_view text, std::size_t longest) {
  const bool cut = text.size() > longest;
  if (cut) {
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
    while (longest > 0 && continues(text[longest])) --longest;
    text = text.substr(0, longest);
  }
  std::string out;
  while (!text.empty()) {
    const auto [character, bytes] = decode(text);
    if (bytes == 0) {
      append_escape(out, 'x', static_cast<unsigned char>(text[0]), 2);
    } else if (character == '\n' || character == '\t' || character == '\r') {
      out += '\\';
      out += character == '\n' ? 'n' : character == '\t' ? 't' : 'r';
    } else if (is_obeyed(character)) {
      append_escape(out, character < 0x80 ? 'x' : 'u', character, character < 0x80 ? 2 : 4);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return cut ? out + "..." : out;
}

}  // namespace seriatim::file
