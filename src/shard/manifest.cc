#include "shard/manifest.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "seriatim/cache_file.hpp"
#include "seriatim/file.hpp"

namespace seriatim {
namespace {

constexpr std::string_view kFormat = "seriatim sharded cache";
constexpr std::string_view kVersion = "1";
constexpr std::int64_t kMostGeneration = std::int64_t{1} << 62;

Status corrupt(std::string_view what) {
  return Status::error(Code::kCorrupt, "manifest", formatted("manifest: {}", what));
}

std::string checksum(std::span<const std::int64_t> numbers) {
  return formatted("{}", XXH3_64bits(numbers.data(), numbers.size_bytes()));
}

// Numbers of one sequence: id, anchor, tokens, cuts, local ids.
std::size_t columns(std::size_t ranks) { return 3 + (ranks - 1) + ranks; }

std::optional<std::int64_t> number(const Metadata& metadata, const std::string& key) {
  const auto at = metadata.find(key);
  std::int64_t value = 0;
  if (at == metadata.end()) return {};
  const char* end = at->second.data() + at->second.size();
  const auto [stop, error] = std::from_chars(at->second.data(), end, value);
  if (error != std::errc() || stop != end || value < 0) return {};
  return value;
}

Result<SavedSpread> read_sequence(std::span<const std::int64_t> numbers, int ranks, const Geometry& geometry) {
  const auto cuts = static_cast<std::size_t>(ranks) - 1;
  SavedSpread saved;
  saved.id = numbers[0];
  saved.spread.run = {numbers[1], numbers[2]};
  saved.spread.cuts.assign(numbers.begin() + 3, numbers.begin() + 3 + static_cast<std::ptrdiff_t>(cuts));
  saved.local.assign(numbers.begin() + 3 + static_cast<std::ptrdiff_t>(cuts), numbers.end());
  if (!geometry.check_run(saved.spread.run).ok() ||
      !admit_cuts(geometry, saved.spread.run.anchor, saved.spread.cuts, ranks).ok())
    return corrupt(formatted("sequence {} has no such run or cuts", saved.id));
  return saved;
}

// What a file's name says, if it is that of a rank's file.
struct RankFile {
  int rank = -1;
  std::int64_t generation = -1;
};
std::optional<RankFile> rank_file(const std::string& name) {
  const auto after = [](std::string_view& text, std::string_view what) {
    const bool there = text.starts_with(what);
    text.remove_prefix(there ? what.size() : 0);
    return there;
  };
  const auto number_of = [](std::string_view& text, auto& number) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return error == std::errc() && number >= 0;
  };
  RankFile one;
  std::string_view text = name;
  if (!after(text, "rank-") || !number_of(text, one.rank) || !after(text, ".") || !number_of(text, one.generation) ||
      text != ".safetensors")
    return {};
  return one;
}

// One file of a Cache: a single rank's.
Result<Manifest> read_file(const std::string& path) {
  const auto info = read_cache_file(path);
  if (!info.ok()) return info.status();
  Manifest manifest;
  manifest.files.push_back(path);
  for (const CacheFileInfo::Sequence& one : info->sequences)
    manifest.sequences.push_back({one.id, {one.run, {}}, {one.id}});
  return manifest;
}

}  // namespace

std::string manifest_path(const std::string& folder) { return folder + "/manifest.safetensors"; }

std::string rank_path(const std::string& folder, int rank, std::int64_t generation) {
  return formatted("{}/rank-{}.{}.safetensors", folder, rank, generation);
}

Status write_manifest(const std::string& folder, const Manifest& manifest) {
  std::vector<std::int64_t> numbers;
  for (const SavedSpread& one : manifest.sequences) {
    numbers.insert(numbers.end(), {one.id, one.spread.run.anchor, one.spread.run.tokens});
    numbers.insert(numbers.end(), one.spread.cuts.begin(), one.spread.cuts.end());
    numbers.insert(numbers.end(), one.local.begin(), one.local.end());
  }
  const Metadata metadata{{"format", std::string(kFormat)},
                          {"version", std::string(kVersion)},
                          {"ranks", formatted("{}", manifest.files.size())},
                          {"generation", formatted("{}", manifest.generation)},
                          {"xxh3", checksum(numbers)}};
  const NamedTensor table{"sequences", dense_view(static_cast<const void*>(numbers.data()), DType::kI64,
                                                  {std::ssize(manifest.sequences),
                                                   static_cast<std::int64_t>(columns(manifest.files.size()))})};
  return write_safetensors(manifest_path(folder), metadata, {&table, 1});
}

Result<Manifest> read_manifest(const std::string& path, const Geometry& geometry) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return read_file(path);
  if (!std::filesystem::exists(manifest_path(path), error))
    return Status::error(Code::kNotFound, "path",
                         formatted("path: {} is neither a file nor a folder with a manifest", path));
  const auto file = SafetensorsFile::open(manifest_path(path));
  if (!file.ok()) return file.status();
  const Metadata& metadata = file->metadata();
  const auto text = [&](const std::string& key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? std::string() : at->second;
  };
  if (text("format") != kFormat) return corrupt("it is none of a sharded cache");
  if (text("version") != kVersion)
    return Status::error(Code::kUnsupported, "manifest", formatted("manifest: version {}", text("version")));
  const auto ranks = number(metadata, "ranks");
  const auto generation = number(metadata, "generation");
  if (!ranks || *ranks < 1 || *ranks > 1 << 20 || !generation || *generation > kMostGeneration)
    return corrupt("its ranks or generation are no numbers");
  const auto table = file->find("sequences");
  if (!table.ok()) return corrupt("it lists no sequences");
  const std::size_t wide = columns(static_cast<std::size_t>(*ranks));
  if (table->dtype != DType::kI64 || table->rank != 2 || table->shape[1] != static_cast<std::int64_t>(wide))
    return corrupt("its sequences have other columns");
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(table->shape[0]) * wide);
  if (!numbers.empty()) std::memcpy(numbers.data(), table->data, numbers.size() * sizeof numbers[0]);
  if (text("xxh3") != checksum(numbers)) return corrupt("its checksum differs");
  Manifest manifest;
  manifest.generation = *generation;
  for (int rank = 0; rank < *ranks; ++rank) manifest.files.push_back(rank_path(path, rank, *generation));
  for (std::size_t at = 0; at < numbers.size(); at += wide) {
    auto one =
        read_sequence(std::span<const std::int64_t>(numbers).subspan(at, wide), static_cast<int>(*ranks), geometry);
    if (!one.ok()) return one.status();
    manifest.sequences.push_back(*std::move(one));
  }
  return manifest;
}

Result<std::int64_t> next_generation(const std::string& folder, const Geometry& geometry) {
  std::int64_t newest = -1;
  if (const auto manifest = read_manifest(folder, geometry); manifest.ok()) newest = manifest->generation;
  std::error_code error;
  std::filesystem::directory_iterator file(folder, error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const auto one = rank_file(file->path().filename().string());
    if (one) newest = std::max(newest, one->generation);
  }
  // Where there is no folder, the file that is to be written there says so.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    return Status::error(Code::kIo, "path", formatted("path: {} cannot be listed: {}", folder, error.message()));
  if (newest >= kMostGeneration) return corrupt(formatted("there is no generation after {}", newest));
  return newest + 1;
}

void remove_older(const std::string& folder, int rank, int ranks, std::int64_t generation) noexcept {
  try {
    std::error_code error;
    for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
      const auto one = rank_file(file.path().filename().string());
      if (!one || one->generation == generation) continue;
      if (one->rank == rank || (rank == 0 && one->rank >= ranks)) std::filesystem::remove(file.path(), error);
    }
  } catch (...) {  // no memory for names: the files stay
  }
}

}  // namespace seriatim
