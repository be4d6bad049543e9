// For tests of any module that write files.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace seriatim::file {

// A folder of this test's own, removed at its end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "seriatim-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& file : std::filesystem::directory_iterator(path_)) out.push_back(file.path().filename().string());
    return out;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace seriatim::file
