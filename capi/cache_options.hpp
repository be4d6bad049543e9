// A cache's options as the library sees them.
#pragma once

#include "seriatim.h"
#include "seriatim/cache.hpp"
#include "seriatim/status.hpp"

namespace seriatim::capi {

// Gives   options that name the allocator of the handle, which must be kept beside them
// Errors  those of the struct and its fields
Status take_cache_options(const seriatim_cache_options* given, CacheOptions& taken);

}  // namespace seriatim::capi
