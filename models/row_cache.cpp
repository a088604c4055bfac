// Rows written in place.
#include "models/row_cache.h"

#include <algorithm>

namespace eddy {

RowCache::RowCache(State& state, const std::string& name, int axis) : axis_(axis) {
  if (!state.get(name).exclusive()) state.set(name, raw::copy(state.get(name)));
  data_ = state.get(name);
}

void RowCache::keep(std::int64_t begin, std::int64_t end) const {
  if (begin == 0) return;
  const Tensor kept = rows(begin, end);
  raw::copy_into(rows(0, end - begin), end - begin <= begin ? kept : raw::copy(kept));
}

Tensor with_room(const Tensor& cache, int axis, std::int64_t rows) {
  const std::int64_t held = cache.dim(axis);
  if (held >= rows) return cache;
  Shape shape = cache.shape();
  shape[axis] = std::max(rows, 2 * held);
  const Tensor longer = Tensor::zeros(shape, cache.dtype(), cache.device());
  raw::copy_into(raw::narrow(longer, axis, 0, held), cache);
  return longer;
}

}  // namespace eddy
