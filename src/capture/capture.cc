
#include "seriatim/capture.hpp"

#include <charconv>
#include <cstring>

#include "base/admit.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "capture/capture_geometry.hpp"
#include "file/bytes.hpp"

namespace seriatim {
namespace {

constexpr std::string_view kVersion = "capture/1";

Status corrupt(std::string_view argument, std::string_view what) {
  return Status::error(Code::kCorrupt, argument, formatted("{}: {}", argument, what));
}

std::string_view metadata_of(const SafetensorsFile& file, std::string_view key) {
  const auto it = file.metadata().find(key);
  return it == file.metadata().end() ? std::string_view{} : std::string_view(it->second);
}

Status check_version(const SafetensorsFile& file) {
  const std::string_view version = metadata_of(file, "seriatim");
  if (version == kVersion) return {};
  if (version.empty()) return corrupt("metadata", "no `seriatim` key: this is not a capture");
  return Status::error(Code::kUnsupported, "metadata",
                       formatted("metadata: `seriatim` is {}, not {}", file::printable(version), kVersion));
}

Result<std::int64_t> parse_anchor(const SafetensorsFile& file) {
  const std::string_view text = metadata_of(file, "anchor");
  std::int64_t anchor = 0;
  if (text.empty()) return anchor;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), anchor);
  if (error != std::errc{} || end != text.data() + text.size()) return corrupt("anchor", "not a decimal number");
  return anchor;
}

// Finds tensors and checks their shapes; the first fault is kept.
class TensorReader {
 public:
  explicit TensorReader(const SafetensorsFile& file) : file_(file) {}

  // dtype of a float tensor that must be there.
  DType float_dtype(std::string_view name) {
    const ConstTensor view = any(name);
    if (status_.ok() && !is_float(view.dtype)) status_ = corrupt(name, formatted("dtype {}", dtype_name(view.dtype)));
    return view.dtype;
  }

  ConstTensor required(std::string_view name, DType dtype, std::initializer_list<std::int64_t> shape) {
    ConstTensor view = any(name);
    if (status_.ok()) status_ = admit_view(name, view, dtype, shape);
    return view;
  }

  ConstTensor optional(std::string_view name, DType dtype, std::initializer_list<std::int64_t> shape) {
    return file_.contains(name) ? required(name, dtype, shape) : ConstTensor{};
  }

  std::int64_t extent(std::string_view name) { return any(name).shape[0]; }
  const Status& status() const { return status_; }

 private:
  ConstTensor any(std::string_view name) {
    if (!status_.ok()) return {};
    auto found = file_.find(name);
    if (found.ok()) return *found;
    status_ =
        found.status().code() == Code::kNotFound ? corrupt(name, "the capture lacks this tensor") : found.status();
    return {};
  }
  const SafetensorsFile& file_;
  Status status_;
};

std::vector<float> floats_of(const ConstTensor& view) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < view.shape[0]; ++i) values.push_back(load_element(view.at(i), view.dtype));
  return values;
}

Result<Geometry> geometry_of(const SafetensorsFile& file, TensorReader& read) {
  auto options = parse_geometry(metadata_of(file, "geometry"));
  if (!options.ok()) return options.status();
  options->index_dtype = read.float_dtype("index_keys");
  options->kv_dtype = read.float_dtype("keys");
  options->values_alias_keys = !file.contains("values");
  if (file.contains("inv_freq")) {
    const ConstTensor inv_freq = read.required("inv_freq", DType::kF32, {options->index_rotary_dim / 2});
    if (read.status().ok()) options->inv_freq = floats_of(inv_freq);
  }
  if (!read.status().ok()) return read.status();
  return Geometry::admit(*std::move(options));
}

Status read_positions(const ConstTensor& view, std::int64_t anchor, std::int64_t tokens,
                      std::vector<std::int64_t>& to) {
  for (std::int64_t q = 0; q < view.shape[0]; ++q) {
    std::int64_t position = 0;
    std::memcpy(&position, view.at(q), sizeof position);
    const bool ascending = to.empty() || position > to.back();
    if (position < anchor || position - anchor >= tokens || !ascending) {
      return Status::error(
          Code::kCorrupt, "query_positions",
          formatted("query_positions: entry {} is {}, {}", q, position,
                    ascending ? formatted("not one of the {} tokens from {}", tokens, anchor) : "not ascending"),
          {q, -1});
    }
    to.push_back(position);
  }
  return {};
}

Result<Capture> admit_capture(const SafetensorsFile& file) {
  if (Status s = check_version(file); !s.ok()) return s;
  const auto anchor = parse_anchor(file);
  if (!anchor.ok()) return anchor.status();

  TensorReader read(file);
  auto geometry = geometry_of(file, read);
  if (!geometry.ok()) return geometry.status();
  const Geometry& g = *geometry;
  const std::int64_t tokens = read.extent("keys");
  const std::int64_t queries = read.extent("query_positions");
  if (read.status().ok()) {
    if (Status s = g.check_run({*anchor, tokens}); !s.ok()) return s;
  }

  Capture capture(file, g);
  capture.anchor = *anchor;
  capture.source = metadata_of(file, "source");
  const bool pooled = g.pooling() == Pooling::kMean;
  const ConstTensor weight = pooled ? read.required("index_norm_weight", DType::kF32, {g.index_dim()}) : ConstTensor{};
  const ConstTensor positions = read.required("query_positions", DType::kI64, {queries});
  capture.index_keys = read.required("index_keys", g.index_dtype(), {tokens, g.index_dim()});
  capture.keys = read.required("keys", g.kv_dtype(), {tokens, g.kv_heads(), g.head_dim()});
  capture.values = read.optional("values", g.kv_dtype(), {tokens, g.kv_heads(), g.value_dim()});
  capture.index_queries = read.required("index_queries", g.index_dtype(), {queries, g.index_heads(), g.index_dim()});
  capture.index_head_weights = read.optional("index_head_weights", DType::kF32, {queries, g.index_heads()});
  const ConstTensor sinks = read.optional("sinks", DType::kF32, {g.query_heads()});
  capture.queries = read.required("queries", g.kv_dtype(), {queries, g.query_heads(), g.head_dim()});
  capture.expected_rows =
      g.selections() == 1 ? read.optional("expected_rows", DType::kI32, {queries, g.row_capacity()})
                          : read.optional("expected_rows", DType::kI32, {queries, g.selections(), g.row_capacity()});
  capture.expected_output = read.optional("expected_output", DType::kF32, {queries, g.query_heads(), g.value_dim()});
  if (!read.status().ok()) return read.status();
  if (pooled) capture.index_norm_weight = floats_of(weight);
  if (!sinks.empty()) capture.sinks = floats_of(sinks);
  if (Status s = read_positions(positions, *anchor, tokens, capture.query_positions); !s.ok()) return s;
  return capture;
}

}  // namespace

Result<Capture> Capture::open(const std::string& path) {
  DefaultFloatEnvironment environment;
  const auto file = SafetensorsFile::open(path);
  return file.ok() ? admit_capture(*file) : file.status();
}

Result<Capture> Capture::parse(std::span<const std::byte> bytes) {
  DefaultFloatEnvironment environment;
  const auto file = SafetensorsFile::parse(bytes);
  return file.ok() ? admit_capture(*file) : file.status();
}

}  // namespace seriatim
