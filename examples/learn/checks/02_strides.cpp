// hint: Go through the axes from the last to the first. The stride of an axis is the product of the sizes behind it.
// hint: transposed swaps two sizes and the same two strides. The numbers stay where they are.
// hint: narrowed changes one size, and the offset: by start times the stride of that axis.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void gives_view(const std::string& part, const View& view) {
  gives(part, "sizes " + text_of(view.sizes) + ", strides " + text_of(view.strides) + ", offset " +
                  text_of(view.offset));
}

void check() {
  for (const Sizes& sizes : {Sizes{2, 3, 4}, Sizes{5}, Sizes{7, 1, 2}, Sizes{3, 2}}) {
    asks("contiguous(" + text_of(sizes) + ")");
    gives("contiguous: strides", contiguous(sizes).strides);
  }
  const View whole{{2, 3, 4}, {12, 4, 1}, 0}, turned{{3, 2}, {1, 3}, 5};
  for (const Sizes& index : {Sizes{1, 2, 3}, Sizes{1, 0, 2}, Sizes{0, 1, 0}}) {
    asks("place_of(sizes [2, 3, 4], strides [12, 4, 1], offset 0; " + text_of(index) + ")");
    gives("place_of", place_of(whole, index));
  }
  for (const Sizes& index : {Sizes{0, 1}, Sizes{2, 1}}) {
    asks("place_of(sizes [3, 2], strides [1, 3], offset 5; " + text_of(index) + ")");
    gives("place_of", place_of(turned, index));
  }
  asks("transposed(sizes [2, 3, 4], strides [12, 4, 1], offset 0; axes 0, 2)");
  gives_view("transposed", transposed(whole, 0, 2));
  asks("transposed(sizes [3, 2], strides [1, 3], offset 5; axes 1, 0)");
  gives_view("transposed", transposed(turned, 1, 0));
  asks("narrowed(sizes [2, 3, 4], strides [12, 4, 1], offset 0; axis 1, start 1, length 1)");
  gives_view("narrowed", narrowed(whole, 1, 1, 1));
  asks("narrowed(sizes [3, 2], strides [1, 3], offset 5; axis 1, start 1, length 1)");
  gives_view("narrowed", narrowed(turned, 1, 1, 1));
}

}  // namespace eddy_learn
