// Status and Result: errors are values.
//
// A Status is one pointer wide; success allocates nothing. A failure says what kind it is (code), in words (message),
// and where: the argument at fault and, where they apply, its row (query) and index. The library never throws on bad
// input, never prints and never aborts; on any failure outputs and caches are exactly as they were.
// Source: contract section 6.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace seriatim {

enum class Code : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,   // shape, stride, dtype, count or option that does not fit
  kNotANumber = 2,        // a NaN score
  kNotFinite = 3,         // a non-finite key, value, query or index key
  kOverflow = 4,          // finite input, but a score or logit passed f32, or an output its dtype; a size past 64 bits
  kNotContiguous = 5,     // a position that is not the successor of the frontier
  kNotChronological = 6,  // a row that is not the canonical shape: order, tail, range or width
  kCapacity = 7,          // more tokens than the cache or workspace was made for
  kOutOfMemory = 8,       // the system refused memory
  kCorrupt = 9,           // a file that is truncated, damaged or contradicts itself
  kUnsupported = 10,      // a version, dtype or feature this build does not know
  kIo = 11,               // the system refused to read or write a file
  kNotFound = 12,         // a name that is not there
                          // 13 is the C ABI's own: a fault of the library itself
  kPeerLost = 14,         // another process of a group ended, or did not answer in time
};

// The code's name in the C++ spelling without the k: "InvalidArgument".
std::string_view code_name(Code code);

// Where an error sits. -1 where there is no such coordinate.
struct Place {
  std::int64_t row = -1;    // query or batch row
  std::int64_t index = -1;  // token, group, element or head within the row
  std::int64_t ask = -1;    // which of the asks of one call, whose row it is
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // success

  // Makes a failure. `argument` and `message` are copied and cut at 64 and 256 bytes; if even that small allocation
  // fails, the code alone survives.
  static Status error(Code code, std::string_view argument, std::string_view message, Place place = {});

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  std::string_view message() const;   // one line, no trailing newline; empty on success
  std::string_view argument() const;  // name of the argument at fault; empty on success
  Place place() const;

 private:
  struct Detail;
  Code code_ = Code::kOk;
  std::shared_ptr<const Detail> detail_;
};

// A value or the Status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace seriatim
