// Bytes that belong to one cache, counted where they are taken and returned.
#pragma once

#include <atomic>
#include <cstdint>

namespace seriatim {

using Ledger = std::atomic<std::int64_t>;

}  // namespace seriatim
