// What a stream keeps of past tokens: a tensor of its state with one row per token on an axis, written in place.
//
//   append    rows are written one after another until the capacity is reached
//   window    when it is reached, the rows still in sight move to the front
//   ring      the same at the end of every block: the last one moves to the front
#pragma once

#include <cstdint>
#include <string>

#include "autograd/state.h"

namespace eddy {

class RowCache {
 public:
  // data: a tensor, or a view of one, with rows on `axis`.
  explicit RowCache(Tensor data, int axis = 1) : data_(std::move(data)), axis_(axis) {}
  // The tensor that a state has under `name`. It is copied first if another handle sees its bytes, so that copies
  // of a state continue independently, and a backward finds what its forward saw.
  RowCache(State& state, const std::string& name, int axis);

  // The rows of one layer of a cache [layers, ...].
  RowCache layer(std::int64_t index) const { return RowCache(raw::select(data_, 0, index), axis_ - 1); }

  // Writes rows from row `at` on, cast to the dtype of the cache.
  // errors: ShapeError for rows that do not fit.
  void put(std::int64_t at, const Tensor& rows) const {
    raw::cast_into(raw::narrow(data_, axis_, at, rows.dim(axis_)), rows);
  }
  // Rows [begin, end), a view.
  Tensor rows(std::int64_t begin, std::int64_t end) const {
    return raw::narrow(data_, axis_, begin, end - begin);
  }
  // Moves rows [begin, end) to the front.
  void keep(std::int64_t begin, std::int64_t end) const;

  std::int64_t capacity() const { return data_.dim(axis_); }
  const Tensor& data() const { return data_; }

 private:
  Tensor data_;
  int axis_;
};

// A cache with at least so many rows on an axis: itself, or one of twice its rows or more that begins with them.
Tensor with_room(const Tensor& cache, int axis, std::int64_t rows);

}  // namespace eddy
