#include "file/bytes.hpp"

namespace seriatim::file {

std::string printable(std::string_view text, std::size_t longest) {
  const bool cut = text.size() > longest;
  if (cut) {
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
    while (longest > 0 && continues(text[longest])) --longest;
    text = text.substr(0, longest);
  }
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  return cut ? out + "..." : out;
}

}  // namespace seriatim::file
