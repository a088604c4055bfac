// hint: In a stretched axis the index of b is always 0: the element [r, c] of dy goes to [0, c], [r, 0] or [0, 0].
// hint: Multiply dy and x number by number first, then sum.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check() {
  const Numbers matrix{1, 2, 3, 4, 5, 6};
  for (const Size rows : {Size{1}, Size{2}})
    for (const Size columns : {Size{1}, Size{3}}) {
      asks("sum_to([1, 2, 3; 4, 5, 6], 2, 3, " + text_of(rows) + ", " + text_of(columns) + ")");
      gives("sum_to", sum_to(matrix, 2, 3, rows, columns), columns);
    }
  const Numbers x{1, 0, -2, 3, 2, 1}, dy{2, 1, 1, -1, 3, 2};
  for (const Size rows : {Size{1}, Size{3}})
    for (const Size columns : {Size{1}, Size{2}}) {
      asks("gradient_of_b(dy " + text_of(dy, 2) + ", x " + text_of(x, 2) + ", 3, 2, " + text_of(rows) + ", " +
           text_of(columns) + ")");
      gives("gradient_of_b", gradient_of_b(dy, x, 3, 2, rows, columns), columns);
    }
}

}  // namespace eddy_learn
