// Shapes: checks, text and the broadcasting rule.
#include "tensor/shape.h"

#include <fmt/ranges.h>
#include <algorithm>

#include "tensor/base/format.h"

namespace eddy {

Shape::Shape(const std::int64_t* sizes, int rank) : rank_(rank) {
  if (rank > kMaxRank) fail<ShapeError>("shape: too many axes: {} (at most {})", rank, kMaxRank);
  for (int i = 0; i < rank; ++i) {
    if (sizes[i] < 0)
      fail<ShapeError>("shape: negative size: {} on axis {} (sizes are 0 or more)", sizes[i], i);
    sizes_[i] = sizes[i];
  }
}

int Shape::normal_axis(int axis) const {
  const int normal = axis < 0 ? axis + rank_ : axis;
  if (normal < 0 || normal >= rank_) no_such_axis(axis);
  return normal;
}

void Shape::no_such_axis(int axis) const {
  fail<ShapeError>("shape: no such axis: {} of {} ({} axes)", axis, to_string(*this), rank_);
}

Shape Shape::with(int axis, std::int64_t size) const {
  Shape result = *this;
  result.sizes_[normal_axis(axis)] = size;
  return result;
}

Shape Shape::without(int axis) const {
  const int gone = normal_axis(axis);
  Shape result;
  for (int i = 0; i < rank_; ++i)
    if (i != gone) result.sizes_[result.rank_++] = sizes_[i];
  return result;
}

Shape Shape::inserted(int axis, std::int64_t size) const {
  if (rank_ == kMaxRank) fail<ShapeError>("shape: too many axes: {} (at most {})", rank_ + 1, kMaxRank);
  const int place = axis < 0 ? axis + rank_ + 1 : axis;
  if (place < 0 || place > rank_) fail<ShapeError>("shape: no such axis: {} of {}", axis, to_string(*this));
  Shape result;
  result.rank_ = rank_ + 1;
  for (int i = 0, from = 0; i < result.rank_; ++i) result.sizes_[i] = i == place ? size : sizes_[from++];
  return result;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank));
  for (int i = 0; i < rank; ++i) {
    const int in_a = i - (rank - a.rank()), in_b = i - (rank - b.rank());
    const std::int64_t size_a = in_a < 0 ? 1 : a[in_a], size_b = in_b < 0 ? 1 : b[in_b];
    if (size_a != size_b && size_a != 1 && size_b != 1)
      fail<ShapeError>(
          "{}: shapes do not broadcast: {} and {} (aligned at the end, sizes must be equal or 1)", op,
          to_string(a), to_string(b));
    sizes[static_cast<std::size_t>(i)] = size_a == 1 ? size_b : size_a;
  }
  return Shape(sizes);
}

}  // namespace eddy
