// The answer to exercise 2.
#include <cstddef>
#include <utility>
#include <vector>

using Sizes = std::vector<long>;

struct View {
  Sizes sizes, strides;
  long offset = 0;
};

View contiguous(const Sizes& sizes) {
  View view{sizes, sizes, 0};
  long stride = 1;
  for (std::size_t axis = sizes.size(); axis-- > 0;) {
    view.strides[axis] = stride;
    stride *= sizes[axis];
  }
  return view;
}

long place_of(const View& view, const Sizes& index) {
  long place = view.offset;
  for (std::size_t axis = 0; axis < index.size(); ++axis) place += index[axis] * view.strides[axis];
  return place;
}

View transposed(const View& view, std::size_t a, std::size_t b) {
  View result = view;
  std::swap(result.sizes[a], result.sizes[b]);
  std::swap(result.strides[a], result.strides[b]);
  return result;
}

View narrowed(const View& view, std::size_t axis, long start, long length) {
  View result = view;
  result.sizes[axis] = length;
  result.offset += start * view.strides[axis];
  return result;
}
