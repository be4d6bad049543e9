// Bytes that belong to one cache, counted by whoever takes and returns them.
#pragma once

#include <atomic>
#include <cstdint>

namespace seriatim {

using Ledger = std::atomic<std::int64_t>;

}  // namespace seriatim
