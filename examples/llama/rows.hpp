// What llama.cpp's own graph selects, observed through its evaluation callback and written as selection dumps
// (docs/conformance.md), a file for each layer that selects, sequence, and head that selects apart.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "session.hpp"

namespace seriatim_llama {

// Rows are TOP_K's answers with the scores it was given. What the mask hides is left out (below the budget TOP_K takes
// that, too), and so is a cell that stands there again, which the mask does not notice either.
class RowRecorder {
 public:
  explicit RowRecorder(int every) : every_(every) {}

  // To be set in SessionOptions, with the recorder as data, before there is a session; watch() gives it that.
  static bool callback(ggml_tensor* tensor, bool ask, void* recorder);
  void watch(const Session& session);

  // Writes the files and says how many.
  int write(const std::string& folder) const;

 private:
  enum class Unit { kTokens, kEntries, kBlocks };  // what a number of TOP_K's row names
  struct Selection {
    std::vector<std::vector<std::int32_t>> rows;
    std::vector<std::vector<float>> scores;
    std::vector<std::int32_t> visible;
  };

  void record(const ggml_tensor* top_k);
  void record_query(Selection& selection, const std::uint8_t* scores, const std::int32_t* row, std::int64_t width,
                    int position) const;
  std::string write_one(const std::string& path, const Selection& selection) const;

  int every_;
  const Session* session_ = nullptr;
  Unit unit_ = Unit::kTokens;
  int group_tokens_ = 1;
  std::int64_t budget_tokens_ = 0;
  std::map<std::tuple<int, int, int>, Selection> selections_;  // layer, sequence, head
};

}  // namespace seriatim_llama
