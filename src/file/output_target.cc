#include "file/output_target.hpp"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "file/bytes.hpp"
#include "file/path.hpp"
#include "seriatim/file.hpp"

namespace seriatim::file {
namespace {

constexpr int kMostLinks = 40;  // as Linux follows

// The links of /proc lead to open files, not to names.
bool lies_in_proc(const std::string& path) {
  std::array<char, PATH_MAX> real{};
  return ::realpath(directory_of(path).c_str(), real.data()) != nullptr &&
         std::string_view(real.data()).starts_with("/proc/");
}

// Follows the links at the end of `target.path`, also one that leads to a name which is not there yet. 0 or an errno.
int follow_links(OutputTarget& target) {
  for (int links = 0; links <= kMostLinks; ++links) {
    struct stat about{};
    if (::lstat(target.path.c_str(), &about) != 0) return errno == ENOENT ? 0 : errno;
    if (!S_ISLNK(about.st_mode)) {
      const bool same = about.st_dev == target.about.st_dev && about.st_ino == target.about.st_ino;
      target.in_place = target.in_place || !same;
      return 0;
    }
    if (lies_in_proc(target.path)) {
      target.in_place = true;
      return 0;
    }
    std::array<char, PATH_MAX> leads_to{};
    const ssize_t length = ::readlink(target.path.c_str(), leads_to.data(), leads_to.size());
    if (length < 0) return errno;
    const std::string_view name(leads_to.data(), static_cast<std::size_t>(length));
    target.path = name.starts_with('/') ? std::string(name) : directory_of(target.path) + '/' + std::string(name);
  }
  return ELOOP;
}

bool may_write(const std::string& path, int how = W_OK) {
  return ::faccessat(AT_FDCWD, path.c_str(), how, AT_EACCESS) == 0;
}

}  // namespace

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string temporary_stem(const std::string& path) {
  constexpr std::size_t kLongestKept = 200;  // of 255; 28 for the two numbers
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(0, std::min(path.size(), name + kLongestKept)) + ".tmp-";
}

Status output_failure(const std::string& path, std::string_view what, int error) {
  return guarded([&] {
    return Status::error(Code::kIo, "file", formatted("{}: {}: {}", shown_path(path), what, std::strerror(error)));
  });
}

Result<OutputTarget> find_output(const std::string& path) {
  if (Status s = admit_path(path); !s.ok()) return s;
  if (path.empty()) return output_failure(path, "cannot be written", ENOENT);
  OutputTarget target;
  target.path = path;
  target.exists = ::stat(path.c_str(), &target.about) == 0;
  if (!target.exists && errno != ENOENT) return output_failure(path, "cannot be written", errno);
  if (target.exists && S_ISDIR(target.about.st_mode)) return output_failure(path, "cannot be written", EISDIR);
  target.in_place = target.exists && !S_ISREG(target.about.st_mode);
  if (!target.in_place) {
    if (const int error = follow_links(target); error != 0) return output_failure(path, "cannot be written", error);
  }
  if (target.exists && !may_write(target.path)) return output_failure(path, "cannot be written", errno);
  if (target.in_place) return target;
  const std::string directory = directory_of(target.path);
  struct stat about{};
  if (::stat(directory.c_str(), &about) != 0) return output_failure(path, "its directory cannot be opened", errno);
  if (!S_ISDIR(about.st_mode)) return output_failure(path, "its directory cannot be opened", ENOTDIR);
  if (!may_write(directory, W_OK | X_OK)) return output_failure(path, "no temporary file can be made beside it", errno);
  return target;
}

}  // namespace seriatim::file

namespace seriatim {

Status check_output(const std::string& path) {
  return file::guarded([&] { return file::find_output(path).status(); });
}

}  // namespace seriatim
