#include "file/bytes.hpp"

namespace seriatim::file {

std::string printable(std::string_view text, std::size_t longest) {
  const bool cut = text.size() > longest;
  if (cut) text = text.substr(0, longest);
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
  if (cut) {  // never end inside a UTF-8 sequence
    while (!text.empty() && continues(text.back())) text.remove_suffix(1);
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0U) text.remove_suffix(1);
  }
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  return cut ? out + "..." : out;
}

}  // namespace seriatim::file
