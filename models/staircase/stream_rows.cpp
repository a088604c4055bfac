// Reading and writing the rows of a stream.
#include "models/staircase/stream_rows.h"

#include "models/staircase/family.h"

namespace eddy {

StreamRows::StreamRows(State& state, const std::string& name, std::int64_t heads, std::int64_t head_dim)
    : rows_(state, name, 2), heads_(heads), head_dim_(head_dim) {}

Tensor StreamRows::columns(std::int64_t layer, std::int64_t begin, std::int64_t end, std::int64_t first,
                           std::int64_t width) const {
  return raw::narrow(rows_.layer(layer).rows(begin, end), 2, first, width);
}

void StreamRows::put(std::int64_t layer, std::int64_t at, const KeysValues& rows) const {
  const std::int64_t inner = heads_ * head_dim_, count = rows.k.dim(1);
  const Shape flat{rows.k.dim(0), count, inner};
  raw::cast_into(columns(layer, at, at + count, 0, inner), raw::reshape(raw::contiguous(rows.k), flat));
  raw::cast_into(columns(layer, at, at + count, inner, inner), raw::reshape(raw::contiguous(rows.v), flat));
}

void StreamRows::put_x(std::int64_t layer, std::int64_t at, const Tensor& x) const {
  raw::cast_into(columns(layer, at, at + x.dim(1), 2 * heads_ * head_dim_, x.dim(2)), x);
}

KeysValues StreamRows::keys_values(std::int64_t layer, std::int64_t begin, std::int64_t end) const {
  const std::int64_t inner = heads_ * head_dim_;
  const Shape by_head{data().dim(1), end - begin, heads_, head_dim_};
  if (begin == end) {
    const Tensor none = Tensor::zeros(by_head, data().dtype(), data().device());
    return {none, none};
  }
  return {raw::reshape(columns(layer, begin, end, 0, inner), by_head),
          raw::reshape(columns(layer, begin, end, inner, inner), by_head)};
}

Tensor StreamRows::x(std::int64_t layer, std::int64_t begin, std::int64_t end) const {
  const std::int64_t first = 2 * heads_ * head_dim_;
  return columns(layer, begin, end, first, data().dim(3) - first);
}

StateTensor StaircaseFamily::rows_tensor(const std::string& name, std::int64_t layers, std::int64_t batch,
                                         std::int64_t capacity) const {
  const staircase::Config& c = config();
  return {.name = name,
          .shape = {layers, batch, capacity, 2 * c.heads * c.head_dim + c.dim},
          .kind = StateTensor::Kind::rows,
          .batch_axis = 1};
}

StreamRows StaircaseFamily::new_rows(std::int64_t layers, std::int64_t batch, std::int64_t capacity) const {
  const Shape shape = rows_tensor(kStreamRows, layers, batch, capacity).shape;
  return {Tensor::zeros(shape, params().activations(), device()), config().heads, config().head_dim};
}

StreamRows StaircaseFamily::rows_of(State& state, const std::string& name) const {
  return {state, name, config().heads, config().head_dim};
}

StreamRows StaircaseFamily::rows_with_room(State& state, std::int64_t& begin, std::int64_t& end,
                                           std::int64_t count) const {
  const StreamRows rows = rows_of(state);
  if (end + count <= rows.capacity()) return rows;
  rows.keep(begin, end);
  end -= begin;
  begin = 0;
  return rows;
}

Tensor StaircaseFamily::stream_inputs(const Tensor& data, std::int64_t layer, std::int64_t begin,
                                      std::int64_t end) const {
  const Tensor rows = raw::narrow(raw::select(data, 0, layer), 1, begin, end - begin);
  return raw::cast(raw::narrow(rows, 2, data.dim(3) - config().dim, config().dim), dtype());
}

}  // namespace eddy
