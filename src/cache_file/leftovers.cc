// Temporary files of saves that were killed: PATH.tmp-PROCESS-NUMBER, made by file::AtomicFile.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "cache_file/save.hpp"

namespace seriatim {
namespace {

// The process that made the temporary file `name` for `target`.
std::optional<int> maker_of(std::string_view name, std::string_view target) {
  constexpr std::string_view kMark = ".tmp-";
  if (!name.starts_with(target) || !name.substr(target.size()).starts_with(kMark)) return std::nullopt;
  name.remove_prefix(target.size() + kMark.size());
  int process = 0;
  unsigned number = 0;
  const char* end = name.data() + name.size();
  const auto first = std::from_chars(name.data(), end, process);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, number);
  if (second.ec != std::errc() || second.ptr != end || process <= 0) return std::nullopt;
  return process;
}

bool has_ended(int process) { return ::kill(process, 0) != 0 && errno == ESRCH; }

}  // namespace

// The system's calls rather than std::filesystem, whose iterator ends the process when it gets no memory.
void remove_leftovers(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string_view target = std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
  DIR* entries = ::opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    const auto process = maker_of(entry->d_name, target);
    if (process && has_ended(*process)) ::unlinkat(::dirfd(entries), entry->d_name, 0);
  }
  ::closedir(entries);
}

}  // namespace seriatim
