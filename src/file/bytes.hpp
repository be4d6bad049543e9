// Small helpers of the readers: little-endian loads, file bytes made fit to print, exceptions turned into values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "seriatim/status.hpp"

namespace seriatim::file {

static_assert(std::endian::native == std::endian::little, "views are the file's own little-endian bytes");

// Takes at least sizeof(Integer) bytes; any alignment.
template <typename Integer>
Integer load_little(std::span<const std::byte> bytes) {
  Integer value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// Outside text for one line of a message or report, cut near `longest` bytes but between characters. What a terminal
// would obey rather than show is written as an escape: control characters (\n, \x1b, \u009b), bytes that are not UTF-8
// (\xff), the separators of lines and the marks that turn the direction of text (\u202e).
std::string printable(std::string_view text, std::size_t longest = 48);

// A path for a message.
inline std::string shown_path(std::string_view path) { return printable(path, 160); }

// Runs `body`, which returns a Status or a Result; memory that the system refuses becomes kOutOfMemory.
template <typename Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "file", "no memory for the file");
  } catch (const std::length_error&) {
    return Status::error(Code::kOutOfMemory, "file", "no memory for the file");
  }
}

}  // namespace seriatim::file
