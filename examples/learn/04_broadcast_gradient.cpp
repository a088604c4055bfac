// Exercise 4: the gradient of broadcasting
//
// y = x b, number by number, with x [rows, columns] and a smaller b that is stretched: [1, columns], [rows, 1] or
// [1, 1]. A number of b that went into many numbers of y gets the sum of what comes back from all of them:
//
//   dx[r, c] = dy[r, c] b[r, c]
//   db       = dy x, summed over the axes that were stretched
//
// A matrix is a vector with one row behind the other.
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;
using Size = std::size_t;

// Sums a matrix [rows, columns] over the axes where the result has size 1: [to_rows, to_columns].
Numbers sum_to(const Numbers& matrix, Size rows, Size columns, Size to_rows, Size to_columns) {
  return Numbers(to_rows * to_columns);  // your code
}

// db of y = x b, for b [b_rows, b_columns].
Numbers gradient_of_b(const Numbers& dy, const Numbers& x, Size rows, Size columns, Size b_rows,
                      Size b_columns) {
  return Numbers(b_rows * b_columns);  // your code: by sum_to
}
