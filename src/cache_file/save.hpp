// Saving, with the system calls replaceable so that a test can make any one of them fail.
#pragma once

#include <span>
#include <string>

#include "cache/state.hpp"
#include "file/output_file.hpp"

namespace seriatim {

struct SavedSequence {
  SequenceId id = 0;
  Ref<const SequenceState> state;
};

// Throws bad_alloc.
Status save_states(const Store& store, std::span<const SavedSequence> sequences, const std::string& path,
                   file::FileCalls& calls = file::system_file_calls());

// Cache::save of all sequences. Throws bad_alloc.
Status save_cache(const Cache& cache, const std::string& path, file::FileCalls& calls);

}  // namespace seriatim
