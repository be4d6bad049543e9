#include "seriatim/status.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

namespace seriatim {

struct Status::Detail {
  std::array<char, 64> argument;
  std::array<char, 256> message;
  std::size_t argument_bytes;
  std::size_t message_bytes;
  Place place;
};

namespace {

template <std::size_t N>
std::size_t copy_cut(std::array<char, N>& to, std::string_view from) {
  const std::size_t bytes = std::min(N, from.size());
  std::copy_n(from.data(), bytes, to.data());
  return bytes;
}

}  // namespace

Status Status::error(Code code, std::string_view argument, std::string_view message, Place place) {
  Status status;
  status.code_ = code;
  try {
    auto detail = std::make_shared<Detail>();
    detail->argument_bytes = copy_cut(detail->argument, argument);
    detail->message_bytes = copy_cut(detail->message, message);
    detail->place = place;
    status.detail_ = std::move(detail);
  } catch (const std::bad_alloc&) {  // the code alone must survive
  }
  return status;
}

std::string_view Status::message() const {
  if (detail_) return {detail_->message.data(), detail_->message_bytes};
  return ok() ? std::string_view{} : code_name(code_);
}

std::string_view Status::argument() const {
  return detail_ ? std::string_view{detail_->argument.data(), detail_->argument_bytes} : std::string_view{};
}

Place Status::place() const { return detail_ ? detail_->place : Place{}; }

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "Ok";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kNotANumber:
      return "NotANumber";
    case Code::kNotFinite:
      return "NotFinite";
    case Code::kOverflow:
      return "Overflow";
    case Code::kNotContiguous:
      return "NotContiguous";
    case Code::kNotChronological:
      return "NotChronological";
    case Code::kCapacity:
      return "Capacity";
    case Code::kOutOfMemory:
      return "OutOfMemory";
    case Code::kCorrupt:
      return "Corrupt";
    case Code::kUnsupported:
      return "Unsupported";
    case Code::kIo:
      return "Io";
    case Code::kNotFound:
      return "NotFound";
    case Code::kPeerLost:
      return "PeerLost";
  }
  return "Unknown";
}

}  // namespace seriatim
