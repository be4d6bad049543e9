// All of Seriatim, in reading order: what happens to a token on its way to the output.
#pragma once

// clang-format off
#include "seriatim/status.hpp"         // errors are values
#include "seriatim/tensor.hpp"         // views of memory that the caller owns
#include "seriatim/executor.hpp"       // what runs parallel work
#include "seriatim/kernels.hpp"        // which implementation runs
#include "seriatim/file.hpp"           // safetensors and .npy
#include "seriatim/geometry.hpp"       // 1 the integers of a layer
#include "seriatim/index.hpp"          // 2 raw index keys -> pooled keys
#include "seriatim/score.hpp"          // 3 index queries x pooled keys -> scores
#include "seriatim/select.hpp"         // 4 scores -> the set of groups
#include "seriatim/row.hpp"            // 5 the set -> the chronological row
#include "seriatim/cache.hpp"          // 6 positions -> slots
#include "seriatim/layer_view.hpp"     // 6 what a layer holds, and where
#include "seriatim/borrow.hpp"         // 6 the same over memory that an engine keeps
#include "seriatim/attend.hpp"         // 7 keys and values of a row -> output and log-sum-exp
#include "seriatim/step.hpp"           // the path put together
#include "seriatim/transport.hpp"      // bytes between the processes of one context
#include "seriatim/group.hpp"          // and whether they make the same call
#include "seriatim/shard.hpp"          // one sequence over many ranks
#include "seriatim/shard_cache.hpp"    // sequences over many ranks
#include "seriatim/oracle.hpp"         // independent plain definitions
#include "seriatim/capture.hpp"        // what another implementation did, read from a file
#include "seriatim/replay.hpp"         // and done again here
#include "seriatim/check.hpp"          // rows of any engine, judged
#include "seriatim/check_picture.hpp"  // and drawn
// clang-format on
