// The answer to exercise 8.
#include <cmath>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;
using Size = std::size_t;

struct Gradients {
  Numbers dx, dw;
};

Gradients rms_norm_gradients(const Numbers& x, const Numbers& w, const Numbers& dy, double eps) {
  Gradients g{Numbers(x.size()), Numbers(w.size())};
  const Size n = w.size();
  for (Size row = 0; row < x.size(); row += n) {
    double square = 0, along = 0;
    for (Size i = 0; i < n; ++i) square += x[row + i] * x[row + i] / static_cast<double>(n);
    const double s = 1 / std::sqrt(square + eps);
    for (Size i = 0; i < n; ++i) along += dy[row + i] * w[i] * x[row + i] * s / static_cast<double>(n);
    for (Size i = 0; i < n; ++i) {
      g.dx[row + i] = s * (dy[row + i] * w[i] - x[row + i] * s * along);
      g.dw[i] += dy[row + i] * x[row + i] * s;
    }
  }
  return g;
}
