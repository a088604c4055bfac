// The answer to exercise 4.
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;
using Size = std::size_t;

Numbers sum_to(const Numbers& matrix, Size rows, Size columns, Size to_rows, Size to_columns) {
  Numbers result(to_rows * to_columns);
  for (Size r = 0; r < rows; ++r)
    for (Size c = 0; c < columns; ++c)
      result[(to_rows == 1 ? 0 : r) * to_columns + (to_columns == 1 ? 0 : c)] += matrix[r * columns + c];
  return result;
}

Numbers gradient_of_b(const Numbers& dy, const Numbers& x, Size rows, Size columns, Size b_rows,
                      Size b_columns) {
  Numbers product(dy.size());
  for (Size i = 0; i < dy.size(); ++i) product[i] = dy[i] * x[i];
  return sum_to(product, rows, columns, b_rows, b_columns);
}
