// A host engine with its scratch reserved, for tests.
#pragma once

#include <gtest/gtest.h>

#include "seriatim/step.hpp"

namespace seriatim::testing {

// For any number of queries in calls of up to `asks` asks.
inline Engine engine_for(const Geometry& geometry, std::int64_t visible_tokens, Executor& executor = serial_executor(),
                         Kernels kernels = default_kernels(), std::int64_t asks = 1) {
  Result<Engine> engine = Engine::host(executor, kernels);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  const Status reserved = engine->reserve(geometry, {visible_tokens, Geometry::kPositions, asks});
  EXPECT_TRUE(reserved.ok()) << reserved.message();
  return *std::move(engine);
}

}  // namespace seriatim::testing
