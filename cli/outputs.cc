#include "outputs.hpp"

#include <sys/stat.h>

#include "file/bytes.hpp"
#include "print.hpp"
#include "seriatim/file.hpp"

namespace seriatim::cli {
namespace {

// Devices and FIFOs may be named twice; a file, by whatever names, may not.
bool same_file(const std::string& a, const std::string& b) {
  struct stat of_a{}, of_b{};
  const bool a_exists = ::stat(a.c_str(), &of_a) == 0;
  const bool b_exists = ::stat(b.c_str(), &of_b) == 0;
  if (!a_exists || !b_exists) return a == b;
  return S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

Status refuse_output(const Output& output, std::string_view why) {
  return Status::error(Code::kInvalidArgument, output.option,
                       formatted("{}: {} {}", output.option, file::shown_path(output.path), why));
}

}  // namespace

Status admit_outputs(const std::vector<std::string>& inputs, const std::vector<Output>& outputs) {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (output->path.empty() || output->path == "-") continue;
    if (Status s = check_output(output->path); !s.ok()) return s;
    for (const std::string& input : inputs) {
      if (!input.empty() && same_file(input, output->path)) return refuse_output(*output, "is what is read");
    }
    for (auto other = outputs.begin(); other != output; ++other) {
      if (!other->path.empty() && other->path != "-" && same_file(other->path, output->path))
        return refuse_output(*output, formatted("is written by --{} already", other->option));
    }
  }
  return {};
}

Status write_output(const std::string& path, std::string_view text) {
  if (path != "-") return write_file(path, file::bytes_of(text));
  print(text);
  return {};
}

}  // namespace seriatim::cli
