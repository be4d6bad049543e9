#include "cache_file/save.hpp"

#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "cache/impl.hpp"
#include "cache_file/format.hpp"
#include "cache_file/save_plan.hpp"
#include "file/bytes.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace seriatim {
namespace {

constexpr std::int64_t kChunkBytes = 1 << 18;  // hashed and written while it is in the CPU's cache

using CopySlots = void (*)(const Geometry&, const Layout&, const std::byte*, std::byte*, std::int64_t, std::int64_t);

// Writes pages of one kind. Slots that are nobody's, and padding, are written as zeros.
class PageWriter {
 public:
  PageWriter(const Store& store, file::OutputFile& file) : store_(store), file_(file) {}

  Status write(const std::vector<PlannedPage>& pages, std::int64_t page_bytes, std::int64_t page_slots, bool padded,
               CopySlots copy_slots, std::vector<std::uint64_t>& hashes) {
    for (const PlannedPage& page : pages) {
      const std::byte* bytes = page.data;
      if (padded || !page.all_live(page_slots)) {
        clean_.assign(static_cast<std::size_t>(page_bytes), std::byte{0});
        for (const SlotRange r : page.live)
          copy_slots(store_.geometry, store_.layout, page.data, clean_.data(), r.begin, r.end);
        bytes = clean_.data();
      }
      if (Status s = write_page(bytes, page_bytes, hashes); !s.ok()) return s;
    }
    return {};
  }

 private:
  Status write_page(const std::byte* bytes, std::int64_t page_bytes, std::vector<std::uint64_t>& hashes) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (std::int64_t done = 0; done < page_bytes; done += kChunkBytes) {
      const auto chunk = static_cast<std::size_t>(std::min(kChunkBytes, page_bytes - done));
      XXH3_64bits_update(&state, bytes + done, chunk);
      if (Status s = file_.write({bytes + done, chunk}); !s.ok()) return s;
    }
    hashes.push_back(XXH3_64bits_digest(&state));
    return {};
  }

  const Store& store_;
  file::OutputFile& file_;
  std::vector<std::byte> clean_;
};

// Everything but pages and hashes.
cache_file::SmallSections small_sections(const Store& store, const SavePlan& plan) {
  using namespace cache_file;
  std::vector<float> weights;
  for (const std::vector<float>& layer : store.norm_weights) weights.insert(weights.end(), layer.begin(), layer.end());
  std::vector<std::uint8_t> indexed;
  for (const LayerLayout& layer : store.layout.layers) indexed.push_back(layer.pooled == kAbsent ? 0 : 1);
  SmallSections small;
  small[kSequences] = cache_file::bytes_of<std::int64_t>(plan.sequences);
  small[kTokenTable] = cache_file::bytes_of<std::int64_t>(plan.token_table);
  small[kPooledTable] = cache_file::bytes_of<std::int64_t>(plan.pooled_table);
  small[kIndexNormWeights] = cache_file::bytes_of<float>(weights);
  small[kInvFreq] = cache_file::bytes_of<float>(store.geometry.inv_freq());
  small[kIndexed] = cache_file::bytes_of<std::uint8_t>(indexed);
  small[kRopeAxes] = cache_file::bytes_of<std::uint8_t>(store.geometry.rope_axes());
  return small;
}

cache_file::Shapes shapes_of(const Store& store, const SavePlan& plan) {
  using namespace cache_file;
  const auto count = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  const std::int64_t layers = count(store.layout.layers);
  Shapes shapes;
  shapes[kTokenPages] = {count(plan.token_pages), store.layout.token_page_bytes};
  shapes[kPooledPages] = {count(plan.pooled_pages), store.layout.pooled_page_bytes};
  shapes[kTokenPageHashes] = {count(plan.token_pages)};
  shapes[kPooledPageHashes] = {count(plan.pooled_pages)};
  shapes[kSequences] = {count(plan.sequences) / static_cast<std::int64_t>(kSequenceColumns), kSequenceColumns};
  shapes[kTokenTable] = {count(plan.token_table)};
  shapes[kPooledTable] = {count(plan.pooled_table)};
  shapes[kChecksums] = {kChecksumCount};
  shapes[kIndexNormWeights] = {layers, store.geometry.index_dim()};
  shapes[kInvFreq] = {count(store.geometry.inv_freq())};
  shapes[kIndexed] = {layers};
  shapes[kRopeAxes] = {count(store.geometry.rope_axes())};
  return shapes;
}

}  // namespace

Status save_states(const Store& store, std::span<const SavedSequence> sequences, const std::string& path,
                   file::FileCalls& calls) {
  if (!store.layout.keeps_keys())
    return Status::error(Code::kUnsupported, "cache", "cache: an index store is neither saved nor restored");
  using namespace cache_file;
  const SavePlan plan = SavePlan::make(store, sequences);
  SmallSections small = small_sections(store, plan);
  const auto header = header_bytes(describe(store.geometry, store.layout.page_tokens), shapes_of(store, plan));
  if (!header.ok()) return header.status();
  auto file = file::OutputFile::create(path, calls);
  if (!file.ok()) return file.status();
  if (Status s = file->write(file::bytes_of(*header)); !s.ok()) return s;
  std::vector<std::uint64_t> token_hashes;
  std::vector<std::uint64_t> pooled_hashes;
  const Layout& layout = store.layout;
  PageWriter pages(store, *file);
  if (Status s = pages.write(plan.token_pages, layout.token_page_bytes, layout.page_tokens, layout.padded,
                             copy_token_slots, token_hashes);
      !s.ok()) {
    return s;
  }
  if (Status s = pages.write(plan.pooled_pages, layout.pooled_page_bytes, layout.page_groups, false, copy_pooled_slots,
                             pooled_hashes);
      !s.ok()) {
    return s;
  }
  small[kTokenPageHashes] = cache_file::bytes_of<std::uint64_t>(token_hashes);
  small[kPooledPageHashes] = cache_file::bytes_of<std::uint64_t>(pooled_hashes);
  const auto sums = checksums(*header, small);
  small[kChecksums] = cache_file::bytes_of<std::uint64_t>(sums);
  for (std::size_t s = kTokenPageHashes; s < kSectionCount; ++s) {
    if (Status status = file->write(small[s]); !status.ok()) return status;
  }
  for (const SavedSequence& saved : sequences) {
    if (Status s = saved.state->check(); !s.ok()) return s;
  }
  return file->commit();
}

Status Cache::save(const std::string& path, std::span<const SequenceId> sequences) const {
  return guarded([&]() -> Status {
    std::vector<SavedSequence> saved;
    saved.reserve(sequences.size());
    std::unique_lock publishing(impl_->publishing);  // one moment for all
    for (const SequenceId id : sequences) {
      const bool twice = std::any_of(saved.begin(), saved.end(), [&](const SavedSequence& s) { return s.id == id; });
      if (twice) {
        return Status::error(Code::kInvalidArgument, "sequences", formatted("sequences: {} is given twice", id),
                             {id, -1});
      }
      const Impl::Entry* entry = std::as_const(*impl_).find(id);
      if (entry == nullptr) return not_found(id);
      saved.push_back({id, entry->state});
    }
    publishing.unlock();
    return save_states(*impl_->store, saved, path);
  });
}

Status save_cache(const Cache& cache, const std::string& path, file::FileCalls& calls) {
  const Cache::Impl& impl = *cache.impl_;
  std::vector<SavedSequence> saved;
  {
    const std::lock_guard publishing(impl.publishing);
    for (const Cache::Impl::Entry& entry : impl.sequences) saved.push_back({entry.id, entry.state});
  }
  return save_states(*impl.store, saved, path, calls);
}

Status Cache::save(const std::string& path) const {
  return guarded([&] { return save_cache(*this, path, file::system_file_calls()); });
}

}  // namespace seriatim
