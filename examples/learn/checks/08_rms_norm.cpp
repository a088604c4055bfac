// hint: Each row takes two passes: first s and the mean of g x s, then dx. A row reads nothing of the other rows.
// hint: y[j] = x[j] s w[j]. Through x[j] alone, x[i] gets g[i] s. Through s it gets sum over j of g[j] x[j] ds/dx[i].
// hint: dw is +=, since all rows share w. dx is not.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

Numbers wanted_rms_norm(const Numbers& x, const Numbers& w, double eps) {
  Numbers y(x.size());
  for (Size row = 0; row < x.size(); row += w.size()) {
    double square = eps;
    for (Size i = 0; i < w.size(); ++i) square += x[row + i] * x[row + i] / static_cast<double>(w.size());
    for (Size i = 0; i < w.size(); ++i) y[row + i] = x[row + i] * w[i] / std::sqrt(square);
  }
  return y;
}

void check(Size rows, Size n, double eps) {
  const std::string sizes = " at rows " + text_of(rows) + ", n " + text_of(n) + ", eps " + text_of(eps);
  const Numbers x = numbers(rows * n, 1), w = numbers(n, 2), dy = numbers(rows * n, 3);
  const Gradients g = rms_norm_gradients(x, w, dy, eps);
  near("dx" + sizes, g.dx, slopes([&](const Numbers& v) { return dot(dy, wanted_rms_norm(v, w, eps)); }, x),
       n, 1e-6);
  near("dw" + sizes, g.dw, slopes([&](const Numbers& v) { return dot(dy, wanted_rms_norm(x, v, eps)); }, w),
       0, 1e-6);
}

int check() {
  check(1, 2, 1e-6);
  check(1, 5, 1e-6);
  check(3, 4, 1e-6);
  check(2, 3, 0.5);
  check(1, 1, 0.1);
  near("dx of a row of zeros, dy 1, w 2, eps 0.25", rms_norm_gradients({0, 0}, {2, 2}, {1, 1}, 0.25).dx,
       {4, 4});
  return result();
}

}  // namespace eddy_learn
