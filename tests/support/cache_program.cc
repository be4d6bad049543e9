#include "support/cache_program.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "support/cache_machine.hpp"

namespace seriatim::cache_testing {

Program decode(std::span<const std::uint8_t> bytes) {
  const auto at = [&](std::size_t i) { return i < bytes.size() ? bytes[i] : std::uint8_t{0}; };
  Program program{at(0), at(1), at(2), {}};
  for (std::size_t i = 3; i + 3 < bytes.size(); i += 4)
    program.operations.push_back({bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]});
  return program;
}

std::optional<Failure> run(const Program& program, const std::string& folder) {
  return Machine(program, folder).run(program);
}

Program shrink(Program program, const std::function<bool(const Program&)>& fails) {
  for (std::size_t piece = std::max<std::size_t>(1, program.operations.size() / 2); piece > 0;) {
    bool left_out = false;
    for (std::size_t at = 0; at + piece <= program.operations.size();) {
      Program shorter = program;
      const auto begin = shorter.operations.begin() + static_cast<std::ptrdiff_t>(at);
      shorter.operations.erase(begin, begin + static_cast<std::ptrdiff_t>(piece));
      if (fails(shorter)) {
        program = std::move(shorter);
        left_out = true;
      } else {
        ++at;
      }
    }
    if (piece > 1)
      piece /= 2;
    else if (!left_out)
      break;
  }
  for (Operation& operation : program.operations) {
    for (std::uint8_t* operand : {&operation.a, &operation.b, &operation.c}) {
      for (std::uint8_t smaller = 0; smaller < *operand;
           smaller = static_cast<std::uint8_t>(smaller == 0 ? 1 : 2 * smaller)) {
        const std::uint8_t before = std::exchange(*operand, smaller);
        if (fails(program)) break;
        *operand = before;
        if (smaller >= 128) break;
      }
    }
  }
  return program;
}

std::string text(const Failure& failure) {
  const auto join = [](std::string all, const std::string& line) { return std::move(all) + "\n  " + line; };
  return std::accumulate(failure.code.begin(), failure.code.end(), failure.what, join);
}

}  // namespace seriatim::cache_testing
