// Rows written in place.
#include "models/row_cache.h"

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

}  // namespace eddy
