// What a stream of the staircase family keeps of past tokens: each layer has one row per token with keys,
// values and one more vector x (mostly the layer's input), from which the state of a segment is made.
//
//   data [layers, batch, capacity, 2 heads head_dim + dim]      row = keys | values | x
//
// New rows are written in place after the others while there is room.
#pragma once

#include <cstdint>
#include <utility>

#include "models/row_cache.h"
#include "models/staircase/layer.h"

namespace eddy {

// Names in a stream's state: its position (i64), and rows of keys, values and inputs [.., batch, rows, ..].
inline constexpr const char* kStreamPosition = "stream.position";
inline constexpr const char* kStreamRows = "stream.rows";

class StreamRows {
 public:
  // data: as above. heads, head_dim: of keys and values.
  StreamRows(Tensor data, std::int64_t heads, std::int64_t head_dim)
      : rows_(std::move(data), 2), heads_(heads), head_dim_(head_dim) {}
  // The rows that a state has under `name`, to be written in place. They are copied first if another handle
  // shares them, so that copies of a state continue independently.
  StreamRows(State& state, const std::string& name, std::int64_t heads, std::int64_t head_dim);

  // Writes keys and values [batch, rows, heads, head_dim], or x [batch, rows, dim], from row `at` on, cast to
  // the dtype of the rows.
  void put(std::int64_t layer, std::int64_t at, const KeysValues& rows) const;
  void put_x(std::int64_t layer, std::int64_t at, const Tensor& x) const;
  // Copies `count` rows of all layers from another object.
  void put_rows(std::int64_t at, const StreamRows& from, std::int64_t begin, std::int64_t count) const {
    rows_.put(at, from.rows_.rows(begin, begin + count));
  }
  // Moves rows [begin, end) to the front.
  void keep(std::int64_t begin, std::int64_t end) const { rows_.keep(begin, end); }

  // Views of rows [begin, end).
  KeysValues keys_values(std::int64_t layer, std::int64_t begin, std::int64_t end) const;
  Tensor x(std::int64_t layer, std::int64_t begin, std::int64_t end) const;

  const Tensor& data() const { return rows_.data(); }
  std::int64_t capacity() const { return rows_.capacity(); }

 private:
  Tensor columns(std::int64_t layer, std::int64_t begin, std::int64_t end, std::int64_t first,
                 std::int64_t width) const;

  RowCache rows_;
  std::int64_t heads_, head_dim_;
};

}  // namespace eddy
