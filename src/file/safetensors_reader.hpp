// A safetensors file of which only the header is held: parts of its tensors are read when they are asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "file/input_file.hpp"
#include "seriatim/file.hpp"
#include "seriatim/status.hpp"

namespace seriatim::file {

class SafetensorsReader {
 public:
  // Admits the file as SafetensorsFile::open does, but for the elements, of which nothing is read.
  // Gives   the file's first bytes, up to the data, in *header if that is not null.
  // Errors  as SafetensorsFile::open.
  static Result<SafetensorsReader> open(const std::string& path, const SafetensorsLimits& limits = {},
                                        std::string* header = nullptr);

  const Metadata& metadata() const { return metadata_; }
  const InputFile& file() const { return file_; }
  // Null if there is no such tensor.
  const SafetensorsEntry* find(std::string_view name) const;

  // Where a tensor's data begin, in the file.
  std::int64_t begin_bytes(const SafetensorsEntry& entry) const { return data_begin_bytes_ + entry.begin_bytes; }

  // Reads to.size() bytes of a tensor's data from `offset_bytes` on; the caller stays inside the tensor.
  // Errors  Io: the file was cut meanwhile, or the system refused. Threads  any number at once.
  Status read(const SafetensorsEntry& entry, std::int64_t offset_bytes, std::span<std::byte> to) const;

 private:
  InputFile file_;
  std::int64_t data_begin_bytes_ = 0;
  Metadata metadata_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace seriatim::file
