// Outside files: safetensors and .npy, read as hostile input and written whole or not at all.
//
// Everything is little-endian. A reader admits a file only when its header, offsets, shapes and length agree exactly;
// afterwards every view it gives lies inside the file's bytes. Element data is not looked at: NaNs and the like are the
// business of the code that takes the view.
//
// A view need not be aligned to its element: a foreign file may leave its header unpadded or put a 2-byte tensor of odd
// length before a 4-byte one. Load elements with memcpy, never through a cast pointer.
//
// Errors name the part at fault: argument is the tensor's name, or "header", "data" or "file"; bytes of the file that
// would not print are shown as '?'.
// Threads: objects are immutable once made; any number of threads may read one. Writers of one path must take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

using Metadata = std::map<std::string, std::string, std::less<>>;

// What a reader is willing to hold; a file past a limit is refused with kUnsupported.
struct SafetensorsLimits {
  std::int64_t header_bytes = 100'000'000;  // the reference reader's own limit
  std::int64_t tensors = 65'536;
  std::int64_t metadata_entries = 65'536;
  std::int64_t rank = 32;                           // of a listed tensor; a view holds kMaxRank at most
  std::int64_t file_bytes = std::int64_t{1} << 40;  // open() only
};

// One tensor as the header lists it. `dtype` keeps the file's spelling ("F32", "F8_E4M3", ...), because a file may list
// tensors that this library has no DType for.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin_bytes = 0;  // within the data section
  std::int64_t end_bytes = 0;
};

class SafetensorsFile {
 public:
  // Reads a file that lies in memory.
  // Takes   the whole file; `bytes` must outlive the result and all views.
  // Errors  kCorrupt: shorter than its header says, not a JSON object of the known form, a name twice, metadata that
  //         are not strings, offsets that do not fit shape and dtype, overlap, leave a hole or do not cover the data
  //         exactly;
  //         kUnsupported: a limit passed, or a dtype that the safetensors format does not know; kOutOfMemory.
  // Memory  proportional to the header.
  // Source  huggingface/safetensors:README.md (format).
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const SafetensorsLimits& limits = {});

  // Reads a regular file into memory of its own (64-byte aligned) and parses it. It is read, not mapped, so that a file
  // that is cut or rewritten afterwards can neither fault nor change under a view. Copies of the result share the
  // memory, which lives as long as one of them; views do not keep it alive.
  // Errors  kIo: cannot be opened or read, not a regular file, changed its length meanwhile; then as parse.
  static Result<SafetensorsFile> open(const std::string& path, const SafetensorsLimits& limits = {});

  const Metadata& metadata() const { return metadata_; }

  // All tensors in the header's order.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }

  // Gives   a dense row-major view into the file's bytes, perhaps unaligned (see above). A tensor of no elements has a
  //         non-null pointer that must not be read.
  // Errors  kNotFound; kUnsupported: a dtype without a DType, or rank above kMaxRank.
  Result<ConstTensor> find(std::string_view name) const;

 private:
  std::shared_ptr<const std::byte> memory_;  // null when the bytes are the caller's
  std::span<const std::byte> data_;          // the data section
  Metadata metadata_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::string> names_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

struct NamedTensor {
  std::string name;
  ConstTensor tensor;
};

// Writes a safetensors file whose bytes depend on nothing but the arguments: metadata in key order, then tensors as
// given, without holes; the header is padded with spaces so that the data begin at a multiple of 8. (Order tensors by
// falling element size where alignment within the data matters.)
// Takes   any strided views without negative strides; UTF-8 names, distinct and not "__metadata__".
// Gives   the file under `path`, whole, with the process's default mode; a symbolic link at `path` is replaced.
// Errors  kInvalidArgument (argument: the tensor's name, or "metadata"), kIo, kOutOfMemory. On failure a file that was
//         at `path` is as it was and no temporary file stays, with one exception: when the directory itself cannot be
//         synced after the rename, the new file is in place, whole, and kIo says that it may not outlast a power cut.
Status write_safetensors(const std::string& path, const Metadata& metadata, std::span<const NamedTensor> tensors);

// An array of NumPy's .npy format, versions 1.0, 2.0 and 3.0.
class NpyArray {
 public:
  // Takes   the whole file; `bytes` must outlive the result and its view.
  // Errors  kCorrupt: a malformed header, or data bytes that are not exactly shape times element size;
  //         kUnsupported: another version, dtypes other than <f4 <f2 <i4 <i8, rank 0 or above kMaxRank, Fortran order
  //         at rank 2 and more, a header above 65,536 bytes.
  // Source  numpy/numpy:numpy/lib/format.py (format).
  static Result<NpyArray> parse(std::span<const std::byte> bytes);

  // As SafetensorsFile::open.
  static Result<NpyArray> open(const std::string& path);

  // A dense row-major view into the file's bytes, perhaps unaligned.
  const ConstTensor& view() const { return view_; }

 private:
  std::shared_ptr<const std::byte> memory_;
  ConstTensor view_;
};

// Writes version 1.0, C order, data at a multiple of 64.
// Takes   any strided view without negative strides, rank 1..kMaxRank, f32, f16, i32 or i64.
// Errors  kUnsupported: bf16, which .npy has no name for; otherwise as write_safetensors.
Status write_npy(const std::string& path, const ConstTensor& array);

// Bytes as they are. This and every other output of the library follow symbolic links; a file that is replaced hands on
// its mode, and its owner and group where the system allows it (not hard links, access lists or extended attributes); a
// device or a FIFO is written in place, and a FIFO that nobody opens for reading within five seconds is refused.
// Temporary files that a killed writer of the same path has left are removed. Errors  kInvalidArgument: the path holds
// NUL; kIo, kOutOfMemory.
Status write_file(const std::string& path, std::span<const std::byte> bytes);

// What can be said beforehand of an output to `path`: that it is no directory, that its directory is there, that both
// may be written. Changes nothing.
// Errors  as write_file.
Status check_output(const std::string& path);

}  // namespace seriatim
