// Temporary files of writers that were killed: PATH.tmp-PROCESS-NUMBER. A living writer holds a lock on its own, which
// goes with the process that had it, in whatever container its number counts.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "file/output_target.hpp"

namespace seriatim::file {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_temporary_of(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem)) return false;
  name.remove_prefix(stem.size());
  const std::size_t dash = name.find('-');
  return dash != std::string_view::npos && is_number(name.substr(0, dash)) && is_number(name.substr(dash + 1));
}

void remove_if_unlocked(int folder, const char* name) {
  const int fd = ::openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat about{};
  if (::fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && ::flock(fd, LOCK_EX | LOCK_NB) == 0)
    ::unlinkat(folder, name, 0);
  ::close(fd);
}

}  // namespace

// The system's calls rather than std::filesystem, whose iterator ends the process when it gets no memory.
void remove_leftovers(const std::string& path) {
  const std::string stem = temporary_stem(path);
  const std::size_t slash = stem.rfind('/');
  const std::string_view name = std::string_view(stem).substr(slash == std::string::npos ? 0 : slash + 1);
  DIR* entries = ::opendir(directory_of(path).c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    if (is_temporary_of(entry->d_name, name)) remove_if_unlocked(::dirfd(entries), entry->d_name);
  }
  ::closedir(entries);
}

}  // namespace seriatim::file
