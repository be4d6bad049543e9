// The committed digests: one line per case and part, "case part values digest".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "seriatim/status.hpp"

namespace seriatim::agreement {

struct Digest {
  std::int64_t values = 0;  // how many numbers it stands for
  std::string hex;          // XXH3-128

  friend bool operator==(const Digest&, const Digest&) = default;
};

class DigestFile {
 public:
  // Errors  Io, Corrupt: a line that is not four words, or one twice.
  static Result<DigestFile> read(const std::string& path);
  // Errors  Io.
  Status write(const std::string& path) const;

  // Null where there is none.
  const Digest* find(const std::string& name, std::string_view part) const;
  void put(const std::string& name, std::string_view part, Digest digest);
  std::size_t size() const { return lines_.size(); }

 private:
  std::map<std::string, Digest> lines_;  // by "case part"
};

}  // namespace seriatim::agreement
