// agreement: computes every case in every way that this build and machine offer and holds the results against the
// committed digests. Ends with 0 only if all agree, at least one value was compared and every digest noticed a flipped
// bit.
//
//   agreement [--quick | --lean] [--digests FILE] [--fixtures FOLDER] [--summary FILE]   compare
//   agreement --write [...]                                                             write the file from the
//   reference
#include <oneapi/tbb/global_control.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "agreement/cases.hpp"
#include "agreement/check.hpp"
#include "agreement/digest_file.hpp"
#include "seriatim/file.hpp"

namespace seriatim::agreement {
namespace {

struct Arguments {
  Extent extent = Extent::kFull;
  bool write = false;
  std::string digests = SERIATIM_AGREEMENT_DIGESTS;
  std::string fixtures = SERIATIM_FIXTURES;
  std::string summary;
};

int usage(const char* fault) {
  std::fprintf(stderr,
               "agreement: %s\nusage: agreement [--quick | --lean] [--write] [--digests FILE] [--fixtures FOLDER] "
               "[--summary FILE]\n",
               fault);
  return 2;
}

int fail(const std::string& what, const Status& status) {
  std::fprintf(stderr, "agreement: %s: %.*s\n", what.c_str(), static_cast<int>(status.message().size()),
               status.message().data());
  return 2;
}

int write(const Arguments& arguments) {
  DigestFile file;
  for (const Case& one : all_cases(arguments.fixtures)) {
    if (Status s = write_case(one, file); !s.ok()) return fail(one.name, s);
  }
  if (Status s = file.write(arguments.digests); !s.ok()) return fail("writing", s);
  std::printf("agreement: wrote %zu digests to %s\n", file.size(), arguments.digests.c_str());
  return 0;
}

int compare(const Arguments& arguments) {
  const auto file = DigestFile::read(arguments.digests);
  if (!file.ok()) return fail("reading", file.status());
  if (!arguments.summary.empty()) {
    if (Status s = check_output(arguments.summary); !s.ok()) return fail("summary", s);
  }
  Checker checker(*file, arguments.extent);
  for (const Case& one : all_cases(arguments.fixtures)) checker.check(one);
  if (Status s = checker.finish(arguments.summary); !s.ok()) return fail("summary", s);
  return checker.agrees() ? 0 : 1;
}

int run(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string* value = word == "--digests"    ? &arguments.digests
                         : word == "--fixtures" ? &arguments.fixtures
                         : word == "--summary"  ? &arguments.summary
                                                : nullptr;
    if (value != nullptr) {
      if (++i == argc) return usage((word + " needs a value").c_str());
      *value = argv[i];
    } else if (word == "--quick") {
      arguments.extent = Extent::kQuick;
    } else if (word == "--lean") {
      arguments.extent = Extent::kLean;
    } else if (word == "--write") {
      arguments.write = true;
    } else {
      return usage((word + " is not an option").c_str());
    }
  }
  // As many threads as a way asks for, also where the machine has fewer cores.
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, 8);
  return arguments.write ? write(arguments) : compare(arguments);
}

}  // namespace
}  // namespace seriatim::agreement

int main(int argc, char** argv) { return seriatim::agreement::run(argc, argv); }
