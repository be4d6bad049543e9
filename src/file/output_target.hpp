// Where the bytes of an output go: a name to rename to, or something that is written in place.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "seriatim/status.hpp"

namespace seriatim::file {

struct OutputTarget {
  std::string path;  // with a link at its end followed
  bool exists = false;
  bool in_place = false;  // a device, a FIFO, a socket, or a file that only a descriptor names (/proc/self/fd)
  struct stat about{};    // where it exists
};

// Changes nothing. Throws bad_alloc.
// Errors  kIo: a directory, a loop of links, a file or directory that may not be written; kInvalidArgument: NUL.
Result<OutputTarget> find_output(const std::string& path);

std::string directory_of(const std::string& path);

// What the names of temporary files of `path` begin with: PATH.tmp-, its name cut where the whole would be too long.
std::string temporary_stem(const std::string& path);

Status output_failure(const std::string& path, std::string_view what, int error);

// Removes temporary files beside `path` that nobody has locked. What cannot be removed stays. Throws bad_alloc.
void remove_leftovers(const std::string& path);

}  // namespace seriatim::file
