#include "agreement/digest_file.hpp"

#include <fstream>
#include <sstream>

#include "base/format.hpp"

namespace seriatim::agreement {
namespace {

constexpr std::string_view kHead =
    "# What every way of computing the cases of tests/agreement must reproduce: case, part, how many values, XXH3-128 "
    "of their\n"
    "# little-endian bytes. Written from the scalar reference by `agreement --write` (docs/agreement.md).\n";

std::string key_of(const std::string& name, std::string_view part) { return formatted("{} {}", name, part); }

}  // namespace

Result<DigestFile> DigestFile::read(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Status::error(Code::kIo, "digests", formatted("digests: cannot open {}", path));
  DigestFile file;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string name, part, rest;
    Digest digest;
    const bool four = static_cast<bool>(words >> name >> part >> digest.values >> digest.hex) && !(words >> rest);
    if (!four || digest.values <= 0 || digest.hex.size() != 32 ||
        !file.lines_.emplace(key_of(name, part), digest).second) {
      return Status::error(Code::kCorrupt, "digests",
                           formatted("digests: line {} is not a new case, part, count and digest", number),
                           {-1, number});
    }
  }
  return file;
}

Status DigestFile::write(const std::string& path) const {
  std::ofstream out(path);
  out << kHead;
  for (const auto& [key, digest] : lines_) out << key << ' ' << digest.values << ' ' << digest.hex << '\n';
  out.close();
  if (!out) return Status::error(Code::kIo, "digests", formatted("digests: cannot write {}", path));
  return {};
}

const Digest* DigestFile::find(const std::string& name, std::string_view part) const {
  const auto it = lines_.find(key_of(name, part));
  return it == lines_.end() ? nullptr : &it->second;
}

void DigestFile::put(const std::string& name, std::string_view part, Digest digest) {
  lines_.insert_or_assign(key_of(name, part), std::move(digest));
}

}  // namespace seriatim::agreement
