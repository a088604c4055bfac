// hint: In a stretched axis the index of b is always 0: the element [r, c] of dy goes to [0, c], [r, 0] or [0, 0].
// hint: Multiply dy and x number by number first, then sum.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  const Numbers matrix{1, 2, 3, 4, 5, 6};
  near("sum_to [1, 3] of {1, 2, 3; 4, 5, 6}", sum_to(matrix, 2, 3, 1, 3), {5, 7, 9}, 3);
  near("sum_to [2, 1] of {1, 2, 3; 4, 5, 6}", sum_to(matrix, 2, 3, 2, 1), {6, 15}, 1);
  near("sum_to [1, 1] of {1, 2, 3; 4, 5, 6}", sum_to(matrix, 2, 3, 1, 1), {21}, 1);
  near("sum_to [2, 3] of {1, 2, 3; 4, 5, 6}", sum_to(matrix, 2, 3, 2, 3), matrix, 3);

  const Size rows = 4, columns = 3;
  const Numbers x = numbers(rows * columns, 1), dy = numbers(rows * columns, 2);
  for (const Size b_rows : {Size{1}, rows})
    for (const Size b_columns : {Size{1}, columns}) {
      const Numbers b = numbers(b_rows * b_columns, 3);
      const auto loss = [&](const Numbers& of) {
        double sum = 0;
        for (Size r = 0; r < rows; ++r)
          for (Size c = 0; c < columns; ++c)
            sum += dy[r * columns + c] * x[r * columns + c] * of[(r % b_rows) * b_columns + c % b_columns];
        return sum;
      };
      near("the gradient of b [" + text_of(b_rows) + ", " + text_of(b_columns) + "]",
           gradient_of_b(dy, x, rows, columns, b_rows, b_columns), slopes(loss, b), b_columns, 1e-7,
           "the slope of the loss");
    }
  return result();
}

}  // namespace eddy_learn
