// What a folder of a sharded cache says about its rank files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shard/sequences.hpp"

namespace seriatim {

struct SavedSpread {
  SequenceId id = 0;
  Spread spread;
  std::vector<SequenceId> local;  // [ranks]: its id in each rank's file
};

struct Manifest {
  std::int64_t generation = 0;     // one more with every save to the folder
  std::vector<std::string> files;  // one per saved rank
  std::vector<SavedSpread> sequences;
};

std::string manifest_path(const std::string& folder);
std::string rank_path(const std::string& folder, int rank, std::int64_t generation);

// Errors  as write_safetensors. Throws bad_alloc.
Status write_manifest(const std::string& folder, const Manifest& manifest);

// Of a folder, or of one file that a Cache has saved.
// Errors  NotFound. Io. Corrupt. Unsupported: a version. Throws bad_alloc.
Result<Manifest> read_manifest(const std::string& path, const Geometry& geometry);

// One more than that of any rank file in the folder, whole or left behind, and than that of its manifest, if one can be
// read: what a save writes never lies over what an earlier one has written.
// Errors  Io. Corrupt: there is none after it. Throws bad_alloc.
Result<std::int64_t> next_generation(const std::string& folder, const Geometry& geometry);

// Removes rank files of other generations: those of `rank`, and on rank 0 those of ranks that there are no more. What
// cannot be removed stays.
void remove_older(const std::string& folder, int rank, int ranks, std::int64_t generation) noexcept;

}  // namespace seriatim
