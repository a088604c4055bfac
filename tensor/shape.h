// The sizes of a tensor: at most six 64-bit numbers, stored inline.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace eddy {

// The most axes of a tensor.
inline constexpr int kMaxRank = 6;

// An ordered list of sizes, each >= 0. Rank 0 is a scalar with one element.
// errors: ShapeError when more than kMaxRank sizes are given or one is negative.
class Shape {
 public:
  // The shape of a scalar, or of these sizes.
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(sizes.begin(), static_cast<int>(sizes.size())) {}
  explicit Shape(const std::vector<std::int64_t>& sizes)
      : Shape(sizes.data(), static_cast<int>(sizes.size())) {}
  Shape(const std::int64_t* sizes, int rank);

  // The number of axes.
  int rank() const { return rank_; }
  // The size of axis 0 .. rank - 1; dim() also counts from the end.
  // errors: ShapeError when there is no such axis.
  std::int64_t operator[](int axis) const { return sizes_[checked(axis)]; }
  std::int64_t& operator[](int axis) { return sizes_[checked(axis)]; }
  // Returns the size of an axis; -1 is the last one.
  // errors: ShapeError when there is no such axis.
  std::int64_t dim(int axis) const { return sizes_[normal_axis(axis)]; }
  // Returns the axis counted from 0; negative axes count from the end.
  int normal_axis(int axis) const;
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= sizes_[i];
    return n;
  }
  const std::int64_t* begin() const { return sizes_; }
  const std::int64_t* end() const { return sizes_ + rank_; }
  std::vector<std::int64_t> to_vector() const { return {begin(), end()}; }

  // Return a copy with another size on `axis`, without `axis`, or with an axis of this size inserted before
  // it.
  Shape with(int axis, std::int64_t size) const;
  Shape without(int axis) const;
  Shape inserted(int axis, std::int64_t size) const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.sizes_[i] != b.sizes_[i]) return false;
    return true;
  }

 private:
  int checked(int axis) const {
    // rank_ never exceeds kMaxRank. Compilers do not know that, and warn of subscripts behind the end where they
    // unroll.
    if (axis < 0 || axis >= rank_ || axis >= kMaxRank) no_such_axis(axis);
    return axis;
  }
  [[noreturn]] void no_such_axis(int axis) const;

  int rank_ = 0;
  std::int64_t sizes_[kMaxRank] = {};
};

// "[2, 3, 4]", for error texts.
std::string to_string(const Shape& shape);

// Returns the common shape of two operands. Axes are aligned at the end; a size of 1 repeats (NumPy's rule).
// errors: ShapeError that names `op` and both shapes.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

}  // namespace eddy
