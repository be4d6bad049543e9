#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "call.hpp"

namespace seriatim::capi {
namespace {

// Everything up to the strings, which an older caller may lack.
constexpr std::size_t kLeastErrorBytes = offsetof(seriatim_error, argument);
static_assert(sizeof(void*) == 8, "the sizes of the ABI's structs are those of 64-bit systems");

template <std::size_t N>
void copy_cut(char (&to)[N], std::string_view from) noexcept {
  const std::size_t bytes = std::min(N - 1, from.size());
  std::copy_n(from.data(), bytes, to);
  std::fill(to + bytes, to + N, '\0');
}

seriatim_status write(std::int32_t code, Place place, std::string_view argument, std::string_view message,
                      seriatim_error* error) noexcept {
  if (error == nullptr) return code;
  seriatim_error full{};
  full.struct_size = error->struct_size;
  full.code = code;
  full.ask = place.ask;
  full.row = place.row;
  full.index = place.index;
  copy_cut(full.argument, argument);
  copy_cut(full.message, message);
  // A caller of another version has fewer bytes, or more that this one knows nothing of.
  std::memcpy(error, &full, std::min(full.struct_size, sizeof full));
  return code;
}

}  // namespace

bool can_report(const seriatim_error* error) noexcept {
  return error == nullptr || error->struct_size >= kLeastErrorBytes;
}

seriatim_status report(const Status& status, seriatim_error* error) noexcept {
  return write(static_cast<std::int32_t>(status.code()), status.place(), status.argument(), status.message(), error);
}

seriatim_status report_internal(const char* what, seriatim_error* error) noexcept {
  return write(SERIATIM_INTERNAL, {}, "library", what, error);
}

Status need(std::initializer_list<Needed> all) {
  for (const Needed& one : all) {
    if (one.pointer != nullptr) continue;
    char message[96] = {};
    std::string_view name(one.name);
    name = name.substr(0, 64);
    const auto end = std::copy(name.begin(), name.end(), message);
    std::copy_n(": NULL", 6, end);
    return Status::error(Code::kInvalidArgument, one.name, message);
  }
  return {};
}

}  // namespace seriatim::capi

using namespace seriatim;

// The numbers of the header are those of the C++ library.
static_assert(SERIATIM_OK == static_cast<int>(Code::kOk));
static_assert(SERIATIM_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument));
static_assert(SERIATIM_NOT_A_NUMBER == static_cast<int>(Code::kNotANumber));
static_assert(SERIATIM_NOT_FINITE == static_cast<int>(Code::kNotFinite));
static_assert(SERIATIM_OVERFLOW == static_cast<int>(Code::kOverflow));
static_assert(SERIATIM_NOT_CONTIGUOUS == static_cast<int>(Code::kNotContiguous));
static_assert(SERIATIM_NOT_CHRONOLOGICAL == static_cast<int>(Code::kNotChronological));
static_assert(SERIATIM_CAPACITY == static_cast<int>(Code::kCapacity));
static_assert(SERIATIM_OUT_OF_MEMORY == static_cast<int>(Code::kOutOfMemory));
static_assert(SERIATIM_CORRUPT == static_cast<int>(Code::kCorrupt));
static_assert(SERIATIM_UNSUPPORTED == static_cast<int>(Code::kUnsupported));
static_assert(SERIATIM_IO == static_cast<int>(Code::kIo));
static_assert(SERIATIM_NOT_FOUND == static_cast<int>(Code::kNotFound));
static_assert(SERIATIM_PEER_LOST == static_cast<int>(Code::kPeerLost));

void seriatim_error_init(seriatim_error* error) {
  if (error == nullptr) return;
  *error = {};
  error->struct_size = sizeof *error;
  error->ask = -1;
  error->row = -1;
  error->index = -1;
}

const char* seriatim_status_name(seriatim_status status) {
  if (status == SERIATIM_INTERNAL) return "Internal";
  return code_name(static_cast<Code>(status)).data();  // a literal, so it ends in 0
}
