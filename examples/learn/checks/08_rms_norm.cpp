// hint: Each row takes two passes: first s and the mean of g x s, then dx. A row reads nothing of the other rows.
// hint: y[j] = x[j] s w[j]. Through x[j] alone, x[i] gets g[i] s. Through s it gets sum over j of g[j] x[j] ds/dx[i].
// hint: dw is +=, since all rows share w. dx is not.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check(Size rows, Size n, double eps) {
  const Numbers x = numbers(rows * n, 1), w = numbers(n, 2), dy = numbers(rows * n, 3);
  asks("rms_norm_gradients(x " + text_of(x, n) + ", w " + text_of(w) + ", dy " + text_of(dy, n) + ", eps " +
       text_of(eps) + ")");
  const Gradients g = rms_norm_gradients(x, w, dy, eps);
  gives("dx", g.dx, n);
  gives("dw", g.dw);
}

void check() {
  check(1, 2, 1);
  check(1, 3, 2);
  check(3, 4, 1);
  check(2, 3, 4);
  check(1, 1, 1);
  asks("rms_norm_gradients(x [0, 0], w [2, 2], dy [1, 1], eps 0.25)");
  gives("dx", rms_norm_gradients({0, 0}, {2, 2}, {1, 1}, 0.25).dx, 2);
}

}  // namespace eddy_learn
