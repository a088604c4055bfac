// Exercise 8: the gradient of a norm
//
// RMS norm divides a row by the root of its mean square, then scales every column:
//
//   s    = 1 / sqrt(mean(x x) + eps)
//   y    = x s w
//
// Every x[i] changes s, and with it the whole row. With g = dy w:
//
//   dx   = s (g - x s mean(g x s))
//   dw   = sum over rows of dy x s
//
// Derive dx before you write it: ds/dx[i] = -s^3 x[i] / n. In Eddy: ops/norm/row_norm.cpp.
#include <cmath>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;
using Size = std::size_t;

struct Gradients {
  Numbers dx, dw;  // [rows, n], [n]
};

Gradients rms_norm_gradients(const Numbers& x, const Numbers& w, const Numbers& dy, double eps) {
  Gradients g{Numbers(x.size()), Numbers(w.size())};
  // your code: a row has w.size() numbers
  return g;
}
