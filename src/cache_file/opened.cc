#include "cache_file/opened.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/format.hpp"
#include "cache/state.hpp"
#include "file/safetensors_reader.hpp"

namespace seriatim {
namespace {

using namespace cache_file;

// The header and where every section lies.
struct Frame {
  file::InputFile file;
  std::string header;  // length, JSON and padding
  Metadata metadata;
  int version = 0;
  Shapes shapes;
  std::array<std::int64_t, kSectionCount> at{};  // offset in the file

  std::int64_t bytes(std::size_t section) const {
    std::int64_t bytes = kSections[section].element_bytes;
    for (const std::int64_t extent : shapes[section]) bytes *= extent;  // judged: they are part of a file
    return bytes;
  }
};

Status place_section(const file::SafetensorsReader& reader, std::size_t section, Frame& frame) {
  const SectionKind& kind = kSections[section];
  const SafetensorsEntry* entry = reader.find(kind.name);
  if (entry == nullptr) return corrupt(kind.name, "it is missing");
  if (entry->dtype != kind.dtype || entry->shape.size() != kind.rank) {
    return corrupt(kind.name, formatted("not of dtype {} and rank {}", kind.dtype, kind.rank));
  }
  frame.shapes[section] = entry->shape;
  frame.at[section] = reader.begin_bytes(*entry);
  return {};
}

Result<Frame> read_frame(const std::string& path) {
  Frame frame;
  SafetensorsLimits limits;
  limits.header_bytes = kMaxHeaderBytes;
  const auto reader = file::SafetensorsReader::open(path, limits, &frame.header);
  if (!reader.ok()) return reader.status();
  frame.file = reader->file();
  frame.metadata = reader->metadata();
  const auto version = version_of(frame.metadata);
  if (!version.ok()) return version.status();
  frame.version = *version;
  for (std::size_t s = 0; s < kSectionCount; ++s) {
    if (Status status = place_section(*reader, s, frame); !status.ok()) return status;
  }
  return frame;
}

// Reads every section but the pages and compares the checksums.
Result<SmallSections> read_small_sections(const Frame& frame) {
  SmallSections small;
  for (std::size_t s = kTokenPageHashes; s < kSectionCount; ++s) {
    small[s].resize(static_cast<std::size_t>(frame.bytes(s)));
    if (Status status = frame.file.read(frame.at[s], small[s]); !status.ok()) return status;
  }
  const auto sums = checksums(frame.header, small);
  if (small[kChecksums].size() != sizeof sums) return corrupt("checksums", formatted("not {} of them", kChecksumCount));
  std::array<std::uint64_t, kChecksumCount> stored;
  std::memcpy(stored.data(), small[kChecksums].data(), sizeof stored);
  if (stored[0] != sums[0]) return corrupt("header", "its checksum is another");
  std::size_t next = 1;
  for (std::size_t s = kTokenPageHashes; s < kSectionCount; ++s) {
    if (s == kChecksums) continue;
    if (stored[next] != sums[next]) return corrupt(kSections[s].name, "its checksum is another");
    ++next;
  }
  if (stored[next] != sums[next]) return corrupt("checksums", "their own checksum is another");
  return small;
}

template <typename T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Result<Geometry> admit_geometry(const Frame& frame, const SmallSections& small) {
  auto options = options_of(frame.metadata);
  if (!options.ok()) return options.status();
  options->inv_freq = values_of<float>(small[kInvFreq]);
  options->rope_axes = values_of<std::uint8_t>(small[kRopeAxes]);
  if (static_cast<std::int64_t>(options->inv_freq.size()) != options->index_rotary_dim / 2) {
    return corrupt("inv_freq",
                   formatted("{} entries for {} rotary dims", options->inv_freq.size(), options->index_rotary_dim));
  }
  auto geometry = Geometry::admit(std::move(*options));
  if (!geometry.ok()) return corrupt("header", geometry.status().message());
  return geometry;
}

Result<CacheOptions> layer_options(const Frame& frame, const SmallSections& small, const Geometry& geometry) {
  const auto page_tokens = integer_of(frame.metadata, "page_tokens");
  if (!page_tokens.ok()) return page_tokens.status();
  const std::vector<std::uint8_t> indexed = values_of<std::uint8_t>(small[kIndexed]);
  const std::vector<float> weights = values_of<float>(small[kIndexNormWeights]);
  const auto dims = static_cast<std::size_t>(geometry.index_dim());
  if (indexed.empty()) return corrupt("indexed", "there is no layer");
  if (*page_tokens < 1) return corrupt("header", "page_tokens is not positive");
  if (frame.shapes[kIndexNormWeights][0] != std::ssize(indexed) ||
      frame.shapes[kIndexNormWeights][1] != geometry.index_dim()) {
    return corrupt("index_norm_weights", formatted("not of shape [{}, {}]", indexed.size(), dims));
  }
  CacheOptions options;
  options.page_tokens = *page_tokens;
  options.layers.resize(indexed.size());
  for (std::size_t l = 0; l < indexed.size(); ++l) {
    if (indexed[l] > 1)
      return corrupt("indexed", formatted("entry {} is neither 0 nor 1", l), {-1, static_cast<std::int64_t>(l)});
    const auto first = weights.begin() + static_cast<std::ptrdiff_t>(l * dims);
    options.layers[l].indexed = indexed[l] == 1;
    options.layers[l].index_norm_weight.assign(first, first + static_cast<std::ptrdiff_t>(dims));
  }
  return options;
}

Status check_pages(const Frame& frame, std::size_t pages, std::size_t hashes, std::int64_t page_bytes) {
  if (frame.shapes[pages][1] != page_bytes) {
    return corrupt(kSections[pages].name,
                   formatted("pages of {} bytes where the geometry makes {}", frame.shapes[pages][1], page_bytes));
  }
  if (frame.shapes[hashes][0] != frame.shapes[pages][0]) {
    return corrupt(kSections[hashes].name,
                   formatted("{} entries for {} pages", frame.shapes[hashes][0], frame.shapes[pages][0]));
  }
  return {};
}

// Cuts a table into the pieces of its sequences.
class TableCutter {
 public:
  TableCutter(Section section, std::span<const std::int64_t> table, std::int64_t page_slots)
      : section_(section), left_(table), page_slots_(page_slots) {}

  Result<std::span<const std::int64_t>> next(std::int64_t row, std::int64_t first, std::int64_t slots) {
    if (first < 0 || first >= page_slots_ || (slots == 0 && first != 0)) {
      return corrupt("sequences", formatted("row {} begins at slot {} of a page of {}", row, first, page_slots_),
                     {row, -1});
    }
    const std::int64_t pages = pages_for(first, slots, page_slots_);
    if (pages > std::ssize(left_))
      return corrupt(kSections[section_].name, formatted("it ends within row {} of sequences", row), {row, -1});
    const auto piece = left_.first(static_cast<std::size_t>(pages));
    left_ = left_.subspan(static_cast<std::size_t>(pages));
    return piece;
  }
  Status finish() const {
    return left_.empty() ? Status()
                         : corrupt(kSections[section_].name, formatted("{} entries are nobody's", left_.size()));
  }

 private:
  Section section_;
  std::span<const std::int64_t> left_;
  std::int64_t page_slots_;
};

// Every entry names a page, every page is named.
Status check_table(Section section, std::span<const std::int64_t> table, std::int64_t pages) {
  std::vector<bool> named(static_cast<std::size_t>(pages));
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] < 0 || table[i] >= pages) {
      return corrupt(kSections[section].name, formatted("entry {} is not one of {} pages", i, pages),
                     {-1, static_cast<std::int64_t>(i)});
    }
    named[static_cast<std::size_t>(table[i])] = true;
  }
  const auto unnamed = std::find(named.begin(), named.end(), false);
  if (unnamed == named.end()) return {};
  return corrupt(kSections[section].name, formatted("page {} is nobody's", unnamed - named.begin()),
                 {unnamed - named.begin(), -1});
}

Status read_sequences(const std::vector<std::int64_t>& rows, CacheFile& out) {
  TableCutter tokens(kTokenTable, out.token_table, out.layout.page_tokens);
  TableCutter groups(kPooledTable, out.pooled_table, out.layout.page_groups);
  std::vector<SequenceId> ids;
  for (std::size_t begin = 0; begin < rows.size(); begin += kSequenceColumns) {
    const auto row = static_cast<std::int64_t>(begin / kSequenceColumns);
    const std::int64_t* column = rows.data() + begin;
    CacheFile::Sequence sequence{
        column[kId], {column[kAnchor], column[kTokens]}, column[kFirstSlot], column[kFirstGroupSlot], {}, {}};
    if (sequence.id < 0) return corrupt("sequences", formatted("row {} has a negative id", row), {row, -1});
    if (Status s = out.geometry.check_run(sequence.run, row); !s.ok())
      return corrupt("sequences", s.message(), {row, -1});
    auto token_pages = tokens.next(row, sequence.first_slot, sequence.run.tokens);
    if (!token_pages.ok()) return token_pages.status();
    const std::int64_t slots = out.layout.pooled_page_bytes == 0 ? 0 : out.geometry.index_keys(sequence.run.tokens);
    auto pooled_pages = groups.next(row, sequence.first_group_slot, slots);
    if (!pooled_pages.ok()) return pooled_pages.status();
    sequence.token_pages = *token_pages;
    sequence.pooled_pages = *pooled_pages;
    out.sequences.push_back(sequence);
    ids.push_back(sequence.id);
  }
  std::sort(ids.begin(), ids.end());
  if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end()) {
    return corrupt("sequences", formatted("sequence {} is there twice", *twice));
  }
  if (Status s = tokens.finish(); !s.ok()) return s;
  return groups.finish();
}

}  // namespace

Result<CacheFile> CacheFile::open(const std::string& path) {
  auto frame = read_frame(path);
  if (!frame.ok()) return frame.status();
  auto small = read_small_sections(*frame);
  if (!small.ok()) return small.status();
  auto geometry = admit_geometry(*frame, *small);
  if (!geometry.ok()) return geometry.status();
  auto options = layer_options(*frame, *small, *geometry);
  if (!options.ok()) return options.status();
  auto layout = Layout::make(*geometry, *options);
  if (!layout.ok()) return corrupt("header", layout.status().message());
  CacheFile out{std::move(frame->file),
                std::move(*geometry),
                std::move(*options),
                std::move(*layout),
                {},
                {},
                {},
                {},
                {},
                {},
                0,
                0};
  if (frame->version == 1) {
    auto version_1 = Version1::make(out.geometry, out.layout);
    if (!version_1.ok()) return corrupt("header", version_1.status().message());
    out.version_1 = std::move(*version_1);
  }
  if (Status s = check_pages(*frame, kTokenPages, kTokenPageHashes, out.token_page_bytes()); !s.ok()) return s;
  if (Status s = check_pages(*frame, kPooledPages, kPooledPageHashes, out.layout.pooled_page_bytes); !s.ok()) return s;
  out.token_page_hashes = values_of<std::uint64_t>((*small)[kTokenPageHashes]);
  out.pooled_page_hashes = values_of<std::uint64_t>((*small)[kPooledPageHashes]);
  out.token_table = values_of<std::int64_t>((*small)[kTokenTable]);
  out.pooled_table = values_of<std::int64_t>((*small)[kPooledTable]);
  out.token_pages_at = frame->at[kTokenPages];
  out.pooled_pages_at = frame->at[kPooledPages];
  if (Status s = check_table(kTokenTable, out.token_table, frame->shapes[kTokenPages][0]); !s.ok()) return s;
  if (Status s = check_table(kPooledTable, out.pooled_table, frame->shapes[kPooledPages][0]); !s.ok()) return s;
  if (frame->shapes[kSequences][1] != static_cast<std::int64_t>(kSequenceColumns)) {
    return corrupt("sequences", formatted("not {} columns", static_cast<int>(kSequenceColumns)));
  }
  if (Status s = read_sequences(values_of<std::int64_t>((*small)[kSequences]), out); !s.ok()) return s;
  return out;
}

}  // namespace seriatim
