// Exercise 6: the gradients of a linear layer
//
//   y[r, o] = sum over i of x[r, i] w[o, i]   + b[o]          x [rows, in], w [out, in], b [out]
//
// The rows of x share w and b, so their gradients are sums over the rows. As products of matrices:
//
//   dx = dy w           [rows, in]
//   dw = dy^T x         [out, in]
//   db = dy^T 1         [out]
//
// A matrix is a vector with one row behind the other.
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;
using Size = std::size_t;

struct Gradients {
  Numbers dx, dw, db;
};

Gradients linear_gradients(const Numbers& x, const Numbers& w, const Numbers& dy, Size rows, Size in,
                           Size out) {
  Gradients g{Numbers(rows * in), Numbers(out * in), Numbers(out)};
  // your code
  return g;
}
