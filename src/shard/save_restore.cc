#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/float_environment.hpp"
#include "shard/manifest.hpp"

namespace seriatim {
namespace {

// What this rank takes of the files of any number of ranks.
class Reader {
 public:
  Reader(ShardedCache::Impl& impl, const Manifest& manifest, const Geometry& geometry)
      : impl_(impl), manifest_(manifest), geometry_(geometry), opened_(manifest.files.size()) {}

  // Gives   next[i].local of every sequence that was made. Throws bad_alloc.
  Status read(std::vector<ShardedSequence>& next) {
    for (std::size_t i = 0; i < next.size(); ++i) {
      const int rank = impl_.group.rank();
      const auto made = impl_.cache->add(next[i].spread.begin(rank));
      if (!made.ok()) return made.status();
      next[i].local = *made;
      const SavedSpread& saved = manifest_.sequences[i];
      for (int from = 0; from < saved.spread.ranks(); ++from) {
        const PositionRange piece = common(saved.spread.range(from), next[i].spread.range(rank));
        if (piece.tokens() == 0) continue;
        if (Status s = take(from, saved, piece, next[i].local); !s.ok()) return s;
      }
    }
    return {};
  }

 private:
  struct Opened {
    std::unique_ptr<Cache> cache;
    std::vector<RestoredSequence> sequences;
  };

  Result<Snapshot> snapshot(int from, SequenceId saved) {
    Opened& one = opened_[static_cast<std::size_t>(from)];
    if (one.cache == nullptr) {
      auto cache = Cache::create(geometry_, impl_.file_options);
      if (!cache.ok()) return cache.status();
      auto sequences = (*cache)->restore(manifest_.files[static_cast<std::size_t>(from)], RestoreMode::kMapVerified);
      if (!sequences.ok()) return sequences.status();
      one = {*std::move(cache), *std::move(sequences)};
    }
    for (const RestoredSequence& sequence : one.sequences) {
      if (sequence.saved == saved) return one.cache->snapshot(sequence.id);
    }
    return Status::error(Code::kCorrupt, "manifest",
                         formatted("manifest: the file of rank {} has no sequence {}", from, saved));
  }

  Status take(int from, const SavedSpread& saved, const PositionRange& piece, SequenceId to) {
    const auto held = snapshot(from, saved.local[static_cast<std::size_t>(from)]);
    if (!held.ok()) return held.status();
    if (Status s = check_saved_range(saved, from, held->run()); !s.ok()) return s;
    auto transaction = impl_.cache->begin();
    if (!transaction.ok()) return transaction.status();
    const std::int64_t most = impl_.pack.message_tokens();
    for (std::int64_t first = piece.begin; first < piece.end; first += most) {
      const std::int64_t count = std::min(most, piece.end - first);
      bytes_.clear();
      impl_.pack.pack(*held, first, count, bytes_);
      if (Status s = impl_.pack.append(bytes_, first, count, *transaction, to); !s.ok()) return s;
    }
    if (Status s = held->check(); !s.ok()) return s;
    return transaction->commit();
  }

 public:
  static Status check_saved_range(const SavedSpread& saved, int rank, VisibleRun held) {
    const PositionRange due = saved.spread.range(rank);
    if (held.tokens == due.tokens() && (held.tokens == 0 || held.anchor == due.begin)) return {};
    return Status::error(
        Code::kCorrupt, "manifest",
        formatted("manifest: the file of rank {} holds {} tokens from {} of sequence {}, where {} from "
                  "{} are due",
                  rank, held.tokens, held.anchor, saved.id, due.tokens(), due.begin));
  }

 private:
  ShardedCache::Impl& impl_;
  const Manifest& manifest_;
  const Geometry& geometry_;
  std::vector<Opened> opened_;
  std::vector<std::byte> bytes_;
};

// As many ranks as saved: every rank's file is what the rank holds.
Status restore_own(ShardedCache::Impl& impl, const Manifest& manifest, RestoreMode mode,
                   std::vector<ShardedSequence>& next) {
  const auto rank = static_cast<std::size_t>(impl.group.rank());
  const auto restored = impl.cache->restore(manifest.files[rank], mode);
  if (!restored.ok()) return restored.status();
  Status status;
  std::vector<bool> taken(restored->size());
  for (std::size_t i = 0; i < next.size(); ++i) {
    const SavedSpread& saved = manifest.sequences[i];
    std::size_t at = 0;
    while (at < restored->size() && ((*restored)[at].saved != saved.local[rank] || taken[at])) ++at;
    if (at == restored->size()) {
      status = Status::error(Code::kCorrupt, "manifest",
                             formatted("manifest: the file of rank {} has no sequence {}", rank, saved.local[rank]));
      break;
    }
    taken[at] = true;
    next[i].local = (*restored)[at].id;
    const auto held = impl.cache->snapshot(next[i].local);
    status = held.ok() ? Reader::check_saved_range(saved, impl.group.rank(), held->run()) : held.status();
    if (!status.ok()) break;
  }
  for (std::size_t at = 0; at < restored->size(); ++at) {
    if (!taken[at]) impl.forget((*restored)[at].id);
  }
  return status;
}

// The argument of a save's error after which the new manifest stands in the folder, with the files that it names.
constexpr std::string_view kInPlace = "manifest";

// Whether a manifest whose writing failed may have been renamed all the same: the sync of the folder comes after that.
bool is_in_place(const std::string& folder, const Manifest& manifest, const Geometry& geometry) {
  const auto now = read_manifest(folder, geometry);
  return now.ok() ? now->generation == manifest.generation : now.status().code() != Code::kNotFound;
}

Status in_place(const Status& status) {
  return Status::error(status.code(), kInPlace, formatted("manifest: it may be in place, but {}", status.message()),
                       status.place());
}

}  // namespace

Status ShardedCache::save(const std::string& folder) const { return save(folder, sequences()); }

Status ShardedCache::save(const std::string& folder, std::span<const SequenceId> sequences) const {
  const int rank = impl_->group.rank();
  const int ranks = impl_->group.size();
  Manifest manifest;
  std::vector<SequenceId> local;
  std::vector<SequenceId> all;
  std::vector<std::int64_t> generations;
  const Call call = Call("save").with("sequences", std::as_bytes(sequences));
  const Status mine = sharded([&]() -> Status {
    for (const SequenceId id : sequences) {
      const auto found = impl_->find(id);
      if (!found.ok()) return found.status();
      manifest.sequences.push_back({id, (*found)->spread, {}});
      local.push_back((*found)->local);
    }
    all.resize(local.size() * static_cast<std::size_t>(ranks));
    generations.resize(static_cast<std::size_t>(ranks));
    if (rank != 0) return {};
    // A manifest that cannot be read is replaced all the same.
    const auto generation = next_generation(folder, geometry());
    if (!generation.ok()) return generation.status();
    manifest.generation = *generation;
    return {};
  });
  if (!mine.ok()) return impl_->group.agree(call, mine);
  // Rank 0's count decides, whatever the others see.
  if (Status s = impl_->group.gather(call, {}, std::as_bytes(std::span(&manifest.generation, 1)),
                                     std::as_writable_bytes(std::span(generations)));
      !s.ok())
    return s;
  manifest.generation = generations.front();
  const std::string path = rank_path(folder, rank, manifest.generation);
  // Where this rank does not know what the others know, rank 0 may have heard of all files and commit them: they stay.
  const auto give_up = [&](const Status& status) {
    std::error_code error;
    if (!impl_->group.ended() && status.argument() != kInPlace) std::filesystem::remove(path, error);
    return status;
  };
  const Status saved = impl_->cache->save(path, local);
  if (Status s =
          impl_->group.gather(call, saved, std::as_bytes(std::span(local)), std::as_writable_bytes(std::span(all)));
      !s.ok())
    return give_up(s);
  const Status written = sharded([&]() -> Status {
    if (rank != 0) return {};
    for (int k = 0; k < ranks; ++k) manifest.files.push_back(rank_path(folder, k, manifest.generation));
    for (std::size_t i = 0; i < local.size(); ++i) {
      for (std::size_t k = 0; k < static_cast<std::size_t>(ranks); ++k)
        manifest.sequences[i].local.push_back(all[k * local.size() + i]);
    }
    const Status status = write_manifest(folder, manifest);
    return status.ok() || !is_in_place(folder, manifest, geometry()) ? status : in_place(status);
  });
  if (Status s = impl_->group.agree(call, written); !s.ok()) return give_up(s);
  remove_older(folder, rank, ranks, manifest.generation);
  return {};
}

Result<std::vector<RestoredSequence>> ShardedCache::restore(const std::string& path, RestoreMode mode) {
  const DefaultFloatEnvironment environment;
  std::optional<Manifest> manifest;
  std::vector<ShardedSequence> next;
  std::vector<RestoredSequence> restored;
  const auto call = [&] {
    Call one("restore");
    one.with("mode", static_cast<std::int64_t>(mode));
    for (std::size_t i = 0; manifest && i < manifest->sequences.size(); ++i) {
      const SavedSpread& saved = manifest->sequences[i];
      one.with("manifest", saved.id).with("manifest", saved.spread.run.anchor);
      one.with("manifest", saved.spread.run.tokens).with("manifest", std::as_bytes(std::span(saved.spread.cuts)));
    }
    return manifest ? one.with("generation", manifest->generation) : one;
  };
  const Status mine = sharded([&]() -> Status {
    if (Status s = impl_->none_open(); !s.ok()) return s;
    auto read = read_manifest(path, geometry());
    if (!read.ok()) return read.status();
    manifest = *std::move(read);
    for (const SavedSpread& saved : manifest->sequences) {
      next.push_back({0, -1, saved.spread});
      if (saved.spread.ranks() != impl_->group.size()) next.back().spread.cuts = even_cuts(saved.spread.run);
      restored.push_back({saved.id, 0});
    }
    const std::lock_guard lock(impl_->publishing);
    impl_->sequences.reserve(impl_->sequences.size() + next.size());
    return {};
  });
  if (Status s = impl_->group.agree(call(), mine); !s.ok()) return s;
  const Status taken = sharded([&]() -> Status {
    if (static_cast<int>(manifest->files.size()) == impl_->group.size())
      return restore_own(*impl_, *manifest, mode, next);
    return Reader(*impl_, *manifest, geometry()).read(next);
  });
  if (Status s = impl_->group.agree(call(), taken); !s.ok()) {
    for (const ShardedSequence& one : next) {
      if (one.local >= 0) impl_->forget(one.local);
    }
    return s;
  }
  const std::lock_guard lock(impl_->publishing);
  for (std::size_t i = 0; i < next.size(); ++i) {
    restored[i].id = next[i].id = impl_->next_id++;
    impl_->sequences.push_back(std::move(next[i]));
  }
  return restored;
}

}  // namespace seriatim
