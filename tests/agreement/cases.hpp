// The cases of the agreement: the shipped captures, and generated inputs at small, odd and real geometry.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agreement/problem.hpp"

namespace seriatim::agreement {

struct Case {
  std::string name;
  bool quick = true;    // part of --quick
  std::string capture;  // the capture's path, or empty: generated
  Recipe recipe;
  std::uint64_t seed = 0;
};

// Takes   fixtures: the folder of the captures
// Gives   every case, in the order of the digest file
std::vector<Case> all_cases(const std::string& fixtures);

// Errors  those of from_capture.
Result<Problem> problem_of(const Case& one);

}  // namespace seriatim::agreement
