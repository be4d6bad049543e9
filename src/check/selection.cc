// Selections: rows in memory, and rows in a dump.

#include <charconv>
#include <cstring>
#include <new>

#include "base/admit.hpp"
#include "base/format.hpp"
#include "check/admit_selection.hpp"
#include "file/bytes.hpp"
#include "file/safetensors_header.hpp"
#include "file/safetensors_reader.hpp"

namespace seriatim {
namespace {

constexpr std::string_view kVersion = "selection/1";

std::int64_t load_integer(const std::byte* at, DType dtype) {
  if (dtype == DType::kI64) {
    std::int64_t wide = 0;
    std::memcpy(&wide, at, sizeof wide);
    return wide;
  }
  std::int32_t narrow = 0;
  std::memcpy(&narrow, at, sizeof narrow);
  return narrow;
}

class ViewSelection final : public Selection {
 public:
  ViewSelection(const SelectionViews& views, About about) : views_(views), about_(std::move(about)) {}
  const About& about() const override { return about_; }

  Status read_row(std::int64_t row, std::span<std::int64_t> entries) const override {
    for (std::size_t i = 0; i < entries.size(); ++i)
      entries[i] = load_integer(views_.rows.at(row, static_cast<std::int64_t>(i)), views_.rows.dtype);
    return {};
  }
  Status read_scores(std::int64_t row, std::span<float> scores) const override {
    for (std::size_t g = 0; g < scores.size(); ++g)
      std::memcpy(&scores[g], views_.scores.at(row, static_cast<std::int64_t>(g)), sizeof(float));
    return {};
  }
  Status read_output(std::int64_t row, std::span<float> output) const override {
    for (std::size_t i = 0; i < output.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      std::memcpy(&output[i], views_.output.at(row, at / about_.output_dim, at % about_.output_dim), sizeof(float));
    }
    return {};
  }

 private:
  SelectionViews views_;
  About about_;
};

class FileSelection final : public Selection {
 public:
  FileSelection(file::SafetensorsReader reader, DType rows, About about)
      : reader_(std::move(reader)), dtype_(rows), about_(std::move(about)) {
    rows_ = reader_.find("rows");
    scores_ = reader_.find("scores");
    output_ = reader_.find("output");
  }
  const About& about() const override { return about_; }

  Status read_row(std::int64_t row, std::span<std::int64_t> entries) const override {
    const std::int64_t bytes_per_row = row_bytes(dtype_, about_.width);
    const auto whole = std::as_writable_bytes(entries);
    const auto read =
        whole.last(static_cast<std::size_t>(bytes_per_row));  // 32-bit entries are widened from the back half
    if (Status s = reader_.read(*rows_, row * bytes_per_row, read); !s.ok()) return s;
    if (dtype_ == DType::kI64) return {};
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::int64_t wide = load_integer(read.data() + 4 * i, DType::kI32);
      std::memcpy(whole.data() + 8 * i, &wide, sizeof wide);
    }
    return {};
  }
  Status read_scores(std::int64_t row, std::span<float> scores) const override {
    return reader_.read(*scores_, row * scores_->shape[1] * 4, std::as_writable_bytes(scores));
  }
  Status read_output(std::int64_t row, std::span<float> output) const override {
    return reader_.read(*output_, row * static_cast<std::int64_t>(output.size_bytes()), std::as_writable_bytes(output));
  }

 private:
  file::SafetensorsReader reader_;
  DType dtype_;
  About about_;
  const SafetensorsEntry* rows_ = nullptr;
  const SafetensorsEntry* scores_ = nullptr;
  const SafetensorsEntry* output_ = nullptr;
};

Status corrupt(std::string_view argument, std::string_view what) {
  return Status::error(Code::kCorrupt, argument, formatted("{}: {}", argument, what));
}

std::string_view value_of(const Metadata& metadata, std::string_view key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? std::string_view{} : std::string_view(it->second);
}

Status read_number(const Metadata& metadata, std::string_view key, bool required, std::int64_t& to) {
  const std::string_view text = value_of(metadata, key);
  if (text.empty() && !required) return {};
  if (text.empty()) return corrupt("metadata", formatted("no `{}` key", key));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  if (error == std::errc{} && end == text.data() + text.size()) return {};
  return corrupt(key, formatted("{} is no decimal number", file::printable(text)));
}

Result<Selection::About> about_of(const Metadata& metadata) {
  const std::string_view version = value_of(metadata, "seriatim");
  if (version.empty()) return corrupt("metadata", "no `seriatim` key: this is not a selection dump");
  if (version != kVersion)
    return Status::error(Code::kUnsupported, "metadata",
                         formatted("metadata: `seriatim` is {}, not {}", file::printable(version), kVersion));
  Selection::About about;
  if (Status s = read_number(metadata, "group_tokens", true, about.group_tokens); !s.ok()) return s;
  if (Status s = read_number(metadata, "budget_tokens", true, about.budget_tokens); !s.ok()) return s;
  if (Status s = read_number(metadata, "anchor", false, about.anchor); !s.ok()) return s;
  const std::string_view unit = value_of(metadata, "unit");
  if (!unit.empty() && unit != "group" && unit != "token")
    return corrupt("unit", formatted("{} is neither `token` nor `group`", file::printable(unit)));
  about.unit = unit == "group" ? RowUnit::kGroup : RowUnit::kToken;
  about.engine = value_of(metadata, "engine");
  return about;
}

// A view of the shape that a file lists, at an address that is not read.
Result<ConstTensor> shape_of(const file::SafetensorsReader& reader, std::string_view name, const std::byte* nowhere) {
  const SafetensorsEntry* entry = reader.find(name);
  if (entry == nullptr) return ConstTensor{};
  const auto dtype = file::dtype_of_safetensors(entry->dtype);
  if (!dtype || entry->shape.size() > kMaxRank) {
    return Status::error(
        Code::kUnsupported, name,
        formatted("{}: dtype {} of rank {}", name, file::printable(entry->dtype), entry->shape.size()));
  }
  ConstTensor view;
  view.data = nowhere;
  view.dtype = *dtype;
  view.rank = static_cast<int>(entry->shape.size());
  std::int64_t stride = dtype_bytes(*dtype);
  for (std::size_t axis = entry->shape.size(); axis-- > 0;) {
    view.shape[axis] = entry->shape[axis];
    view.stride_bytes[axis] = stride;
    stride *= std::max<std::int64_t>(entry->shape[axis], 1);
  }
  return view;
}

Result<std::unique_ptr<Selection>> admit_file(file::SafetensorsReader reader) {
  auto about = about_of(reader.metadata());
  if (!about.ok()) return about.status();
  static constexpr std::byte kNowhere{};
  SelectionViews shapes;
  const std::pair<const char*, ConstTensor*> tensors[] = {
      {"rows", &shapes.rows}, {"visible", &shapes.visible}, {"scores", &shapes.scores}, {"output", &shapes.output}};
  for (const auto& [name, to] : tensors) {
    auto shape = shape_of(reader, name, &kNowhere);
    if (!shape.ok()) return shape.status();
    *to = *shape;
  }
  if (Status s = admit_shapes(shapes, *about); !s.ok()) return s;
  std::vector<std::byte> visible(static_cast<std::size_t>(row_bytes(shapes.visible.dtype, about->rows)));
  if (Status s = reader.read(*reader.find("visible"), 0, visible); !s.ok()) return s;
  shapes.visible.data = visible.data();
  if (Status s = admit_visible(shapes, *about); !s.ok()) return s;
  return std::unique_ptr<Selection>(
      std::make_unique<FileSelection>(std::move(reader), shapes.rows.dtype, *std::move(about)));
}

}  // namespace

Status admit_visible(const SelectionViews& views, Selection::About& about) {
  about.visible.resize(static_cast<std::size_t>(about.rows));
  GeometryOptions options;
  options.group_tokens = about.group_tokens;
  options.budget_tokens = about.budget_tokens;
  const auto geometry = Geometry::admit(std::move(options));
  if (!geometry.ok()) return geometry.status();
  for (std::int64_t q = 0; q < about.rows; ++q) {
    const std::int64_t visible = load_integer(views.visible.at(q), views.visible.dtype);
    if (Status s = geometry->check_run({about.anchor, visible}, q); !s.ok()) return s;
    if (about.has_scores && geometry->groups(visible) > views.scores.shape[1]) {
      return Status::error(Code::kInvalidArgument, "scores",
                           formatted("scores: {} groups where row {} sees {} tokens, {} groups", views.scores.shape[1],
                                     q, visible, geometry->groups(visible)),
                           {q, -1});
    }
    about.visible[static_cast<std::size_t>(q)] = visible;
  }
  return {};
}

Status admit_shapes(const SelectionViews& views, Selection::About& about) {
  if (views.rows.empty()) return corrupt("rows", "the selection lacks this tensor");
  if (views.visible.empty()) return corrupt("visible", "the selection lacks this tensor");
  const auto integers = [](std::string_view name, const ConstTensor& view, std::initializer_list<std::int64_t> shape) {
    const DType dtype = view.dtype == DType::kI64 ? DType::kI64 : DType::kI32;
    return admit_view(name, view, dtype, shape);
  };
  if (Status s = integers("rows", views.rows, {-1, -1}); !s.ok()) return s;
  about.rows = views.rows.shape[0];
  about.width = views.rows.shape[1];
  if (about.rows == 0)
    return Status::error(Code::kInvalidArgument, "rows", "rows: 0 rows, so there is nothing to judge");
  if (about.width > Geometry::kMaxExtent)
    return Status::error(Code::kInvalidArgument, "rows",
                         formatted("rows: {} entries per row, at most {}", about.width, Geometry::kMaxExtent));
  if (views.visible.rank == 1 && views.visible.shape[0] != about.rows) {
    return Status::error(Code::kInvalidArgument, "visible",
                         formatted("visible: {} counts for {} rows", views.visible.shape[0], about.rows));
  }
  if (Status s = integers("visible", views.visible, {about.rows}); !s.ok()) return s;
  about.has_scores = !views.scores.empty();
  if (about.has_scores) {
    if (Status s = admit_view("scores", views.scores, DType::kF32, {about.rows, -1}); !s.ok()) return s;
  }
  about.output_heads = about.output_dim = 0;
  if (views.output.empty()) return {};
  if (Status s = admit_view("output", views.output, DType::kF32, {about.rows, -1, -1}); !s.ok()) return s;
  about.output_heads = views.output.shape[1];
  about.output_dim = views.output.shape[2];
  return {};
}

Result<std::unique_ptr<Selection>> view_selection(const SelectionViews& views, Selection::About about) {
  return file::guarded([&]() -> Result<std::unique_ptr<Selection>> {
    if (Status s = admit_shapes(views, about); !s.ok()) return s;
    if (Status s = admit_visible(views, about); !s.ok()) return s;
    return std::unique_ptr<Selection>(std::make_unique<ViewSelection>(views, std::move(about)));
  });
}

Result<std::unique_ptr<Selection>> parse_selection(std::span<const std::byte> bytes) {
  return file::guarded([&]() -> Result<std::unique_ptr<Selection>> {
    const auto file = SafetensorsFile::parse(bytes);
    if (!file.ok()) return file.status();
    auto about = about_of(file->metadata());
    if (!about.ok()) return about.status();
    SelectionViews views;
    const std::pair<const char*, ConstTensor*> tensors[] = {
        {"rows", &views.rows}, {"visible", &views.visible}, {"scores", &views.scores}, {"output", &views.output}};
    for (const auto& [name, to] : tensors) {
      if (!file->contains(name)) continue;
      const auto view = file->find(name);
      if (!view.ok()) return view.status();
      *to = *view;
    }
    return view_selection(views, *std::move(about));
  });
}

Result<std::unique_ptr<Selection>> open_selection(const std::string& path) {
  return file::guarded([&]() -> Result<std::unique_ptr<Selection>> {
    auto reader = file::SafetensorsReader::open(path);
    if (!reader.ok()) return reader.status();
    return admit_file(*std::move(reader));
  });
}

}  // namespace seriatim
