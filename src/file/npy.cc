
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/format.hpp"
#include "file/bytes.hpp"
#include "file/dense.hpp"
#include "file/input_file.hpp"
#include "file/npy_header.hpp"
#include "file/output_file.hpp"
#include "seriatim/file.hpp"

namespace seriatim {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionEnd = 8;          // magic, major, minor
constexpr std::size_t kLongestHeader = 65'536;  // NumPy's own reader warns past 10,000
constexpr std::size_t kDataAlignment = 64;

struct NpyType {
  std::string_view descr;
  DType dtype;
};

constexpr std::array kTypes{NpyType{"<f4", DType::kF32}, NpyType{"<f2", DType::kF16}, NpyType{"<i4", DType::kI32},
                            NpyType{"<i8", DType::kI64}};

Status corrupt(std::string_view argument, std::string_view message) {
  return Status::error(Code::kCorrupt, argument, formatted("{}: {}", argument, message));
}

Status unsupported(std::string_view message) {
  return Status::error(Code::kUnsupported, "header", formatted("header: {}", message));
}

struct Frame {
  std::string_view header;
  std::span<const std::byte> data;
};

Result<Frame> frame(std::span<const std::byte> bytes) {
  if (bytes.size() < kVersionEnd) return corrupt("header", "the file ends within its first 8 bytes");
  if (file::text_of(bytes.first(kMagic.size())) != kMagic) return corrupt("header", "is not of an .npy file");
  const auto major = std::to_integer<int>(bytes[6]);
  const auto minor = std::to_integer<int>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) return unsupported(formatted("version {}.{}", major, minor));
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::span<const std::byte> rest = bytes.subspan(kVersionEnd);
  if (rest.size() < length_bytes) return corrupt("header", "the file ends before the header's length");
  const std::size_t length =
      major == 1 ? file::load_little<std::uint16_t>(rest) : file::load_little<std::uint32_t>(rest);
  if (length > kLongestHeader)
    return unsupported(formatted("claims {} bytes, the limit is {}", length, kLongestHeader));
  if (length > rest.size() - length_bytes) {
    return corrupt("header", formatted("claims {} bytes, the file has {} left", length, rest.size() - length_bytes));
  }
  return Frame{file::text_of(rest.subspan(length_bytes, length)), rest.subspan(length_bytes + length)};
}

Result<ConstTensor> view_of(const file::NpyHeader& header, std::span<const std::byte> data) {
  const auto* type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const NpyType& known) { return known.descr == header.descr; });
  if (type == kTypes.end()) {
    return unsupported(formatted("dtype {} (known: <f4, <f2, <i4, <i8)", file::printable(header.descr)));
  }
  const std::size_t rank = header.shape.size();
  if (rank < 1 || rank > kMaxRank) return unsupported(formatted("rank {} is outside 1..{}", rank, kMaxRank));
  if (header.fortran_order && rank > 1) return unsupported("Fortran order; save the array in C order");
  const std::optional<std::int64_t> bytes = file::dense_bytes(header.shape, 8 * dtype_bytes(type->dtype));
  if (!bytes) return corrupt("header", "shape and dtype pass 64 bits");
  if (*bytes != std::ssize(data)) {
    return corrupt("data", formatted("{} bytes, shape and dtype need {}", data.size(), *bytes));
  }
  return file::dense_view_of(data.data(), type->dtype, header.shape);
}

// All bytes before the data, filled up with spaces to a multiple of 64.
std::string header_bytes(std::string_view descr, std::span<const std::int64_t> shape) {
  std::string dictionary = formatted("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                     joined(shape, ", "), shape.size() == 1 ? "," : "");
  const std::size_t used = kVersionEnd + sizeof(std::uint16_t) + dictionary.size() + 1;
  dictionary.append((kDataAlignment - used % kDataAlignment) % kDataAlignment, ' ');
  dictionary += '\n';
  std::string out(kMagic);
  out += '\1';
  out += '\0';
  out += static_cast<char>(dictionary.size() & 0xFFU);
  out += static_cast<char>(dictionary.size() >> 8U);
  return out + dictionary;
}

}  // namespace

Result<NpyArray> NpyArray::parse(std::span<const std::byte> bytes) {
  return file::guarded([&]() -> Result<NpyArray> {
    const Result<Frame> framed = frame(bytes);
    if (!framed.ok()) return framed.status();
    const Result<file::NpyHeader> header = file::parse_npy_header(framed->header);
    if (!header.ok()) return header.status();
    const Result<ConstTensor> view = view_of(*header, framed->data);
    if (!view.ok()) return view.status();
    NpyArray out;
    out.view_ = *view;
    return out;
  });
}

Result<NpyArray> NpyArray::open(const std::string& path) {
  Result<file::OwnedBytes> owned = file::read_file(path, std::numeric_limits<std::int64_t>::max());
  if (!owned.ok()) return owned.status();
  Result<NpyArray> out = parse(owned->bytes());
  if (out.ok()) out->memory_ = std::move(owned->memory);
  return out;
}

Status write_npy(const std::string& path, const ConstTensor& array) {
  return file::guarded([&]() -> Status {
    Status status = file::admit_view(array, "array");
    if (!status.ok()) return status;
    if (array.rank == 0) return Status::error(Code::kInvalidArgument, "array", "array: rank 0");
    const auto* type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const NpyType& known) { return known.dtype == array.dtype; });
    if (type == kTypes.end()) {
      return Status::error(Code::kUnsupported, "array",
                           formatted("array: .npy has no name for {}", dtype_name(array.dtype)));
    }
    Result<file::OutputFile> out = file::OutputFile::create(path);
    if (!out.ok()) return out.status();
    const auto shape = std::span(array.shape).first(static_cast<std::size_t>(array.rank));
    status = out->write(file::bytes_of(header_bytes(type->descr, shape)));
    if (!status.ok()) return status;
    status = file::for_each_run(array, [&](std::span<const std::byte> run) { return out->write(run); });
    return status.ok() ? out->commit() : status;
  });
}

}  // namespace seriatim
