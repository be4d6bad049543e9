// Temporary files of saves that were killed: PATH.tmp-PROCESS-NUMBER, made by file::AtomicFile.
#include <signal.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "cache/save.hpp"

namespace seriatim {
namespace {

// The process that made the temporary file `name` for `target`.
std::optional<int> maker_of(std::string_view name, const std::string& target) {
  const std::string prefix = target + ".tmp-";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
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

void remove_leftovers(const std::string& path) noexcept {
  try {
    const std::filesystem::path target(path);
    const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      const auto process = maker_of(at->path().filename().string(), target.filename().string());
      std::error_code ignored;
      if (process && has_ended(*process)) std::filesystem::remove(at->path(), ignored);
    }
  } catch (const std::exception&) {  // no memory for names: the leftovers stay until the next save
  }
}

}  // namespace seriatim
