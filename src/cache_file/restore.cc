
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "cache/impl.hpp"
#include "cache_file/format.hpp"
#include "cache_file/opened.hpp"
#include "cache_file/page_check.hpp"
#include "seriatim/cache_file.hpp"

namespace seriatim {
namespace {

using namespace cache_file;

Status differs(std::string_view name, std::string_view what) {
  return Status::error(Code::kInvalidArgument, name, formatted("{}: the file was saved with another: {}", name, what));
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Whether a state of the file means the same here.
Status check_same(const Store& store, const CacheFile& file) {
  const Metadata ours = describe(store.geometry, store.layout.page_tokens);
  for (const auto& [key, value] : describe(file.geometry, file.layout.page_tokens)) {
    const std::string& here = ours.find(key)->second;
    if (value != here) return differs(key, formatted("{} in the file, {} here", value, here));
  }
  const auto inv_freq = [](const Geometry& g) { return std::vector<float>(g.inv_freq().begin(), g.inv_freq().end()); };
  if (!same_bits(inv_freq(store.geometry), inv_freq(file.geometry))) return differs("inv_freq", "not the same bits");
  if (!std::ranges::equal(store.geometry.rope_axes(), file.geometry.rope_axes()))
    return differs("rope_axes", "not the same axes");
  if (file.options.layers.size() != store.layout.layers.size()) {
    return differs("layers",
                   formatted("{} in the file, {} here", file.options.layers.size(), store.layout.layers.size()));
  }
  for (std::size_t l = 0; l < file.options.layers.size(); ++l) {
    const bool indexed = store.layout.layers[l].pooled != kAbsent;
    if (file.options.layers[l].indexed != indexed)
      return differs("layers", formatted("layer {} has an index in only one of them", l));
    if (!same_bits(file.options.layers[l].index_norm_weight, store.norm_weights[l])) {
      return differs("index_norm_weight", formatted("layer {} has not the same bits", l));
    }
  }
  return {};
}

// The pages of one kind, in the file's order, before anybody sees them.
struct PageSource {
  PageRules rules;
  std::int64_t at;
  std::span<const std::uint64_t> hashes;
  std::int64_t page_bytes;
  PagePool& pool;
};

struct Pages {
  std::vector<Ref<Page>> pages;
  float largest = 0.0f;  // magnitude of an element; infinity if not known
};

// `version_1`: the file's pages are to be converted.
Result<Pages> copy_pages(const CacheFile& file, const PageSource& source, const Version1* version_1) {
  Pages read;
  read.pages.reserve(source.hashes.size());
  // A file without pages may claim any size of them.
  const bool converts = version_1 != nullptr && !source.hashes.empty();
  std::vector<std::byte> older(converts ? static_cast<std::size_t>(version_1->token_page_bytes) : 0);
  for (std::size_t i = 0; i < source.hashes.size(); ++i) {
    auto page = source.pool.acquire();
    if (!page.ok()) return page.status();
    const std::span<std::byte> into =
        version_1 == nullptr ? std::span((*page)->data, static_cast<std::size_t>(source.page_bytes)) : std::span(older);
    const auto largest =
        read_page(file.file, source.rules, source.at, static_cast<std::int64_t>(i), source.hashes[i], into);
    if (!largest.ok()) return largest.status();
    if (version_1 != nullptr) version_1->convert(file.geometry, file.layout, older.data(), (*page)->data);
    read.largest = std::max(read.largest, *largest);
    read.pages.push_back(std::move(*page));
  }
  return read;
}

Result<Pages> map_pages(const Ref<Mapping>& mapping, std::int64_t mapped_at, bool verify, const PageSource& source) {
  Pages mapped;
  mapped.pages.reserve(source.hashes.size());
  if (!verify) mapped.largest = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < source.hashes.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    const std::byte* data = mapping->data() + (source.at - mapped_at) + number * source.page_bytes;
    if (verify) {
      const std::span<const std::byte> page(data, static_cast<std::size_t>(source.page_bytes));
      const auto largest = check_page(source.rules, number, source.hashes[i], page);
      if (mapping->damaged().load()) return damaged_error();
      if (!largest.ok()) return largest.status();
      mapped.largest = std::max(mapped.largest, *largest);
    }
    mapped.pages.push_back(source.pool.wrap(mapping, data));
  }
  return mapped;
}

// A sequence's table. A page's mark becomes the largest count of slots that any sequence uses of it.
Ref<const Table> make_table(Ledger& ledger, const std::vector<Ref<Page>>& pages, std::span<const std::int64_t> numbers,
                            std::int64_t used_slots, std::int64_t page_slots) {
  if (numbers.empty()) return {};
  const auto length = static_cast<std::int64_t>(numbers.size());
  Ref<Table> table = Table::make(ledger, nullptr, 0, 0, length);
  for (std::int64_t i = 0; i < length; ++i) {
    const Ref<Page>& page = pages[static_cast<std::size_t>(numbers[static_cast<std::size_t>(i)])];
    page->mark = std::max(page->mark, std::min(page_slots, used_slots - i * page_slots));
    table->push(page);
  }
  return table;
}

struct LoadedPages {
  Pages tokens;
  Pages pooled;
  Ref<Mapping> mapping;
};

Result<LoadedPages> load_pages(Store& store, const CacheFile& file, RestoreMode mode) {
  const bool pools = store.geometry.pooling() == Pooling::kMean;
  const RowKernels& kernels = row_kernels(store.kernels);
  const Version1* version_1 = file.version_1 ? &*file.version_1 : nullptr;
  const auto& token_blocks = version_1 == nullptr ? store.layout.token_blocks : version_1->token_blocks;
  const PageSource tokens{{kSections[kTokenPages].name, token_blocks, false, kernels},
                          file.token_pages_at,
                          file.token_page_hashes,
                          file.token_page_bytes(),
                          store.token_pages};
  const PageSource pooled{{kSections[kPooledPages].name, store.layout.pooled_blocks, pools, kernels},
                          file.pooled_pages_at,
                          file.pooled_page_hashes,
                          store.layout.pooled_page_bytes,
                          store.pooled_pages};
  LoadedPages loaded;
  if (mode != RestoreMode::kCopy && version_1 != nullptr) {
    return Status::error(Code::kUnsupported, "token_pages",
                         "token_pages: of a file of version 1, which is restored by copying; saved again it can be "
                         "mapped");
  }
  if (mode != RestoreMode::kCopy && !file.mappable()) {
    return Status::error(Code::kUnsupported, "token_pages",
                         "token_pages: not at a multiple of 64 bytes; restore by copying");
  }
  const bool map = mode != RestoreMode::kCopy && !file.token_page_hashes.empty();
  const std::int64_t begin = std::min(tokens.at, pooled.at);
  if (map) {
    const auto end_of = [](const PageSource& s) {
      return s.at + static_cast<std::int64_t>(s.hashes.size()) * s.page_bytes;
    };
    auto mapping = Mapping::map(file.file.descriptor(), begin, std::max(end_of(tokens), end_of(pooled)) - begin,
                                store.mapped_bytes, store.bookkeeping_bytes);
    if (!mapping.ok()) return mapping.status();
    loaded.mapping = std::move(*mapping);
  }
  for (const auto& [source, pages] : {std::pair{&tokens, &loaded.tokens}, std::pair{&pooled, &loaded.pooled}}) {
    auto read = map ? map_pages(loaded.mapping, begin, mode == RestoreMode::kMapVerified, *source)
                    : copy_pages(file, *source, source == &tokens ? version_1 : nullptr);
    if (!read.ok()) return read.status();
    *pages = std::move(*read);
  }
  return loaded;
}

Ref<const SequenceState> make_state(const Ref<Store>& store, const LoadedPages& pages,
                                    const CacheFile::Sequence& sequence) {
  const Layout& layout = store->layout;
  const std::int64_t groups = layout.pooled_page_bytes == 0 ? 0 : store->geometry.index_keys(sequence.run.tokens);
  Span tokens{make_table(store->bookkeeping_bytes, pages.tokens.pages, sequence.token_pages,
                         sequence.first_slot + sequence.run.tokens, layout.page_tokens),
              sequence.first_slot};
  Span pooled{make_table(store->bookkeeping_bytes, pages.pooled.pages, sequence.pooled_pages,
                         sequence.first_group_slot + groups, layout.page_groups),
              sequence.first_group_slot};
  return SequenceState::make(store, sequence.run, std::move(tokens), std::move(pooled), pages.pooled.largest,
                             sequence.run.tokens == 0 ? Ref<Mapping>() : pages.mapping);
}

}  // namespace

Result<std::vector<RestoredSequence>> Cache::restore(const std::string& path, RestoreMode mode) {
  DefaultFloatEnvironment environment;
  return guarded([&]() -> Result<std::vector<RestoredSequence>> {
    if (!impl_->store->layout.keeps_keys())
      return Status::error(Code::kUnsupported, "cache", "cache: an index store is neither saved nor restored");
    auto file = CacheFile::open(path);
    if (!file.ok()) return file.status();
    if (Status s = check_same(*impl_->store, *file); !s.ok()) return s;
    auto pages = load_pages(*impl_->store, *file, mode);
    if (!pages.ok()) return pages.status();
    std::vector<Ref<const SequenceState>> states;
    std::vector<RestoredSequence> restored;
    for (const CacheFile::Sequence& sequence : file->sequences) {
      states.push_back(make_state(impl_->store, *pages, sequence));
      restored.push_back({sequence.id, 0});
    }
    const std::lock_guard writing(impl_->writing);
    const std::lock_guard publishing(impl_->publishing);
    impl_->sequences.reserve(impl_->sequences.size() + states.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      restored[i].id = impl_->next_id++;
      impl_->sequences.push_back({restored[i].id, std::move(states[i])});
    }
    return restored;
  });
}

}  // namespace seriatim
