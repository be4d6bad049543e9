#include "rows.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

namespace seriatim_llama {
namespace {

// The layer in the name of a tensor or of what it was made from, "indexer_score-3 (view)"; -1: none has one.
int layer_of(const ggml_tensor* tensor) {
  for (int depth = 0; tensor != nullptr && depth < 8; ++depth, tensor = tensor->src[0]) {
    const char* dash = std::strrchr(tensor->name, '-');
    if (dash != nullptr && std::isdigit(static_cast<unsigned char>(dash[1])) != 0) return std::atoi(dash + 1);
  }
  return -1;
}

// The bytes of a tensor as it lies, strides included.
std::vector<std::uint8_t> bytes_of(const ggml_tensor* tensor) {
  std::vector<std::uint8_t> bytes(ggml_nbytes(tensor));
  ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
  return bytes;
}

std::string numbered(const char* format, int number) {
  char text[64];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

template <typename T>
void append(std::string& data, const std::vector<T>& values) {
  if (!values.empty()) data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Rows of unequal length as one array, `width` wide.
template <typename T>
std::vector<T> padded(const std::vector<std::vector<T>>& rows, std::size_t width, T padding) {
  std::vector<T> all(rows.size() * width, padding);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), all.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  return all;
}

template <typename T>
std::size_t longest(const std::vector<std::vector<T>>& rows) {
  std::size_t most = 1;
  for (const auto& row : rows) most = std::max(most, row.size());
  return most;
}

}  // namespace

void RowRecorder::watch(const Session& session) {
  const SessionOptions& options = session.options();
  const std::string family = session.architecture();
  const std::int64_t top_k = session.model_number("attention.indexer.top_k");
  if (top_k < 1) die(family + " has no indexer: there is nothing to record");
  if (options.unified && options.sequences > 1)
    die("cells that sequences share are no positions: record without --unified");
  if (family == "qwen4exp") {
    group_tokens_ = 4;
    budget_tokens_ = top_k;
  } else if (family == "glm5-next") {
    unit_ = Unit::kEntries;
    group_tokens_ = static_cast<int>(session.model_number("attention.indexer.kpool"));
    budget_tokens_ = top_k;
  } else if (family == "deepseek4") {
    unit_ = Unit::kEntries;
    group_tokens_ = 4;
    budget_tokens_ = 4 * top_k;
  } else if (family == "minimax-m3") {
    unit_ = Unit::kBlocks;
    group_tokens_ = static_cast<int>(session.model_number("attention.indexer.block_size"));
    budget_tokens_ = group_tokens_ * top_k;
  } else {
    budget_tokens_ = top_k;
  }
  session_ = &session;
}

bool RowRecorder::callback(ggml_tensor* tensor, bool ask, void* recorder) {
  auto& self = *static_cast<RowRecorder*>(recorder);
  const bool wanted = self.session_ != nullptr && tensor->op == GGML_OP_TOP_K;
  if (ask) return wanted;
  if (wanted) self.record(tensor);
  return true;
}

void RowRecorder::record(const ggml_tensor* top_k) {
  const ggml_tensor* scores = top_k->src[0];
  const int layer = layer_of(scores);
  const bool heads_apart = unit_ == Unit::kBlocks;
  const std::int64_t heads = heads_apart ? top_k->ne[1] : 1;
  const std::int64_t columns = ggml_nrows(top_k) / heads;
  const std::int64_t per_sequence = session_->last_count();
  if (layer < 0 || columns != per_sequence * session_->options().sequences) {
    die("a TOP_K of " + std::to_string(columns) + " queries is not what was fed: " + top_k->name);
  }
  const std::vector<std::uint8_t> rows = bytes_of(top_k);
  const std::vector<std::uint8_t> values = bytes_of(scores);
  for (std::int64_t i = 0; i < columns * heads; ++i) {
    const std::int64_t column = i / heads;
    const int position = session_->position() + static_cast<int>(column % per_sequence);
    if ((position + 1) % every_ != 0) continue;
    const std::int64_t i1 = i % top_k->ne[1];
    const std::int64_t i2 = i / top_k->ne[1] % top_k->ne[2];
    const std::int64_t i3 = i / top_k->ne[1] / top_k->ne[2];
    const auto offset = [&](const ggml_tensor* tensor) {
      return static_cast<std::size_t>(i1) * tensor->nb[1] + static_cast<std::size_t>(i2) * tensor->nb[2] +
             static_cast<std::size_t>(i3) * tensor->nb[3];
    };
    Selection& selection =
        selections_[{layer, static_cast<int>(column / per_sequence), heads_apart ? static_cast<int>(i % heads) : -1}];
    record_query(selection, values.data() + offset(scores),
                 reinterpret_cast<const std::int32_t*>(rows.data() + offset(top_k)), top_k->ne[0], position);
  }
}

void RowRecorder::record_query(Selection& selection, const std::uint8_t* scores, const std::int32_t* row,
                               std::int64_t width, int position) const {
  const int visible = position + 1;
  const int blocks = (visible + group_tokens_ - 1) / group_tokens_;
  // A block that is not full counts as whole: it is forced in, with a score that no other has.
  const int groups = unit_ == Unit::kBlocks ? blocks : visible / group_tokens_;
  const int limit = unit_ == Unit::kTokens ? visible : groups;
  std::vector<std::int32_t> seen;
  std::set<std::int32_t> known;
  for (std::int64_t i = 0; i < width; ++i) {
    if (row[i] < limit && known.insert(row[i]).second) seen.push_back(row[i]);
  }
  std::vector<float> given(static_cast<std::size_t>(groups));
  const int step = unit_ == Unit::kTokens ? group_tokens_ : 1;
  for (int group = 0; group < groups; ++group) {
    std::memcpy(&given[static_cast<std::size_t>(group)], scores + static_cast<std::size_t>(group * step) * 4, 4);
  }
  selection.rows.push_back(std::move(seen));
  selection.scores.push_back(std::move(given));
  selection.visible.push_back(unit_ == Unit::kBlocks ? blocks * group_tokens_ : visible);
}

std::string RowRecorder::write_one(const std::string& path, const Selection& selection) const {
  const std::size_t queries = selection.rows.size();
  const std::size_t width = longest(selection.rows);
  const std::size_t groups = longest(selection.scores);
  const std::size_t rows_end = queries * width * 4;
  const std::size_t visible_end = rows_end + queries * 4;
  const auto tensor = [&](const char* name, const char* type, const std::string& shape, std::size_t begin,
                          std::size_t end) {
    return std::string(",\"") + name + R"(":{"dtype":")" + type + R"(","shape":[)" + shape + R"(],"data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  const std::string count = std::to_string(queries);
  std::string header = R"({"__metadata__":{"seriatim":"selection/1","group_tokens":")" + std::to_string(group_tokens_) +
                       R"(","budget_tokens":")" + std::to_string(budget_tokens_) + R"(","engine":")" + engine_name() +
                       (unit_ == Unit::kTokens ? R"("})" : R"(","unit":"group"})");
  header += tensor("rows", "I32", count + "," + std::to_string(width), 0, rows_end);
  header += tensor("visible", "I32", count, rows_end, visible_end);
  header +=
      tensor("scores", "F32", count + "," + std::to_string(groups), visible_end, visible_end + queries * groups * 4);
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string data;
  append(data, std::vector<std::uint64_t>{header.size()});
  data += header;
  append(data, padded(selection.rows, width, -1));
  append(data, selection.visible);
  append(data, padded(selection.scores, groups, 0.0F));
  std::ofstream out(path, std::ios::binary);
  out.write(data.data(), static_cast<std::streamsize>(data.size()));
  out.close();
  if (!out) die(path + ": could not be written");
  return path;
}

int RowRecorder::write(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  for (const auto& [key, selection] : selections_) {
    const auto [layer, sequence, head] = key;
    std::string name = numbered("layer_%02d", layer);
    if (head >= 0) name += numbered(".head_%d", head);
    if (session_->options().sequences > 1) name += numbered(".sequence_%d", sequence);
    write_one(folder + "/" + name + ".safetensors", selection);
  }
  return static_cast<int>(selections_.size());
}

}  // namespace seriatim_llama
