// hint: Go through the axes from the last to the first. The stride of an axis is the product of the sizes behind it.
// hint: transposed swaps two sizes and the same two strides. The numbers stay where they are.
// hint: narrowed changes one size, and the offset: by start times the stride of that axis.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  same("the strides of [2, 3, 4]", contiguous({2, 3, 4}).strides, Sizes{12, 4, 1});
  same("the strides of [5]", contiguous({5}).strides, Sizes{1});
  same("the strides of [7, 1, 2]", contiguous({7, 1, 2}).strides, Sizes{2, 2, 1});
  const View whole{{2, 3, 4}, {12, 4, 1}, 0};
  same("the place of [1, 2, 3] in [2, 3, 4]", place_of(whole, {1, 2, 3}), 23L);
  same("the place of [1, 0, 2] in [2, 3, 4]", place_of(whole, {1, 0, 2}), 14L);
  same("the place of [0, 1] at strides [1, 3], offset 5", place_of({{3, 2}, {1, 3}, 5}, {0, 1}), 8L);

  const View turned = transposed(whole, 0, 2);
  same("the sizes of [2, 3, 4] with axes 0 and 2 swapped", turned.sizes, Sizes{4, 3, 2});
  same("its strides", turned.strides, Sizes{1, 4, 12}, "nothing is copied");

  const View part = narrowed(whole, 1, 1, 2);
  same("the sizes of [2, 3, 4], rows 1 and 2 of axis 1", part.sizes, Sizes{2, 2, 4});
  same("its strides", part.strides, Sizes{12, 4, 1});
  same("its offset", part.offset, 4L);
  const View both = narrowed(transposed(part, 1, 2), 1, 3, 1);
  same("the offset of that, transposed, column 3", both.offset, 7L, "an offset adds to the one before");
  return result();
}

}  // namespace eddy_learn
