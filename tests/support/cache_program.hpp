// Random programs of cache operations, run beside the plain definition of what they mean.
//
// Any bytes decode to a program, so that a random generator, a shrinker and a fuzzer all speak the same language.
// Operands are taken modulo what there is when the operation runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace seriatim::cache_testing {

struct Operation {
  std::uint8_t kind = 0;
  std::uint8_t a = 0;
  std::uint8_t b = 0;
  std::uint8_t c = 0;
};

struct Program {
  // Group size, dtypes, coordinates, aliased values, finished keys, a layer without an index, an index store.
  std::uint8_t geometry = 0;
  std::uint8_t layers = 0;
  std::uint8_t capacity = 0;  // pages
  std::vector<Operation> operations;
};

Program decode(std::span<const std::uint8_t> bytes);

struct Failure {
  std::string what;
  std::vector<std::string> code;  // the program up to there, one line an operation
};

// Runs the program. After every operation each sequence and each snapshot is compared with its definition; at the end
// the cache must hold nothing. `folder`: where files may be saved; empty: saving operations do nothing.
std::optional<Failure> run(const Program& program, const std::string& folder);

// A program that still fails, from which nothing can be left out.
Program shrink(Program program, const std::function<bool(const Program&)>& fails);

std::string text(const Failure& failure);

}  // namespace seriatim::cache_testing
