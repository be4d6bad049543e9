// What a caller names by a seriatim_layer.
#pragma once

#include "seriatim.h"
#include "seriatim/cache.hpp"
#include "seriatim/status.hpp"

namespace seriatim::capi {

// Errors  InvalidArgument: not exactly one handle, a layer that is none; NotFound: sequence.
Result<LayerView> take_layer(const seriatim_layer* given);

}  // namespace seriatim::capi
