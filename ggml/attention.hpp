// FLASH_ATTN_EXT where few entries of a mask are visible: the row is read off the mask, and the library attends over
// the keys and values of the row, where they lie.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <list>
#include <string_view>
#include <vector>

#include "outcome.hpp"
#include "seriatim/borrow.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/step.hpp"
#include "workers.hpp"

namespace seriatim::plugin {

// Why a FLASH_ATTN_EXT node is ggml's: "softcap", "ALiBi", "no mask", ...; empty where it is ours. Reads shapes, types
// and parameters alone.
std::string_view unfit_attention(const ggml_tensor* node);

// The most entries of a mask's row that the graph says are visible; 0 where it says nothing.
std::int64_t most_visible(const ggml_tensor* node);

// Rows of cells for the queries of all streams, one stream after the other, as Attention reads them off a mask or
// another part of the graph knows them.
struct CellRows {
  const std::int32_t* cells = nullptr;  // [S * nt][stride], ascending
  std::int64_t stride = 0;
  const std::int32_t* counts = nullptr;  // [S * nt]
  const float* biases = nullptr;         // [S * nt][stride] or null
};

class Attention {
 public:
  // Takes   a node that fits.
  // Gives   kLeft where the library refuses (elements that are not finite), where a row of the mask has more visible
  //         entries than the graph says, and where it says nothing and most are visible. Throws bad_alloc.
  Outcome compute(const ggml_tensor* node, Workers& workers, const AbortCallback& abort);

  // Queries first .. first + count - 1 of every stream numbered through, over rows that are known; `rows` has those
  // alone.
  Outcome attend(const ggml_tensor* node, std::int64_t first, std::int64_t count, const CellRows& rows,
                 Workers& workers);

 private:
  struct Piece {  // of a slice that lies in one stream
    std::int64_t stream;
    std::int64_t first;  // query of the stream
    std::int64_t count;
  };

  const Geometry* geometry_for(const ggml_tensor* node, bool widened);
  Outcome read_rows(const ggml_tensor* node, std::int64_t first, std::int64_t count, Workers& workers);
  bool is_dense(std::int64_t count, std::int64_t cells) const;
  Outcome attend_piece(const ggml_tensor* node, const Piece& piece, const CellRows& rows, Workers& workers);
  Outcome attend_widened(const ggml_tensor* node, const Piece& piece, const CellRows& rows, Workers& workers);
  Outcome run(const ggml_tensor* node, const Piece& piece, const ConstRows& rows, const LayerView& layer,
              Workers& workers);

  std::list<Geometry> geometries_;  // of the layers met so far, a few
  std::vector<std::int32_t> cells_;
  std::vector<std::int32_t> counts_;
  std::vector<float> biases_;
  std::vector<std::int64_t> positions_;
  std::vector<std::int32_t> place_;  // of each cell among those that were widened
  std::vector<std::int32_t> union_;  // those cells, ascending
  std::vector<std::int32_t> renumbered_;
  std::vector<float> keys_;
  std::vector<float> values_;
};

}  // namespace seriatim::plugin
