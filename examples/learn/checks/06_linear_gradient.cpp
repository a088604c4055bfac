// hint: Take one dy[r, o] at a time. In y[r, o], the number x[r, i] is multiplied by w[o, i]: so dx[r, i] gets
//       dy[r, o] w[o, i], and dw[o, i] gets dy[r, o] x[r, i].
// hint: All of them are +=: x[r, i] goes into `out` numbers, w[o, i] into `rows`.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check(Size rows, Size in, Size out) {
  const Numbers x = numbers(rows * in, 1), w = numbers(out * in, 2), dy = numbers(rows * out, 4);
  asks("linear_gradients(x " + text_of(x, in) + ", w " + text_of(w, in) + ", dy " + text_of(dy, out) + ", " +
       text_of(rows) + ", " + text_of(in) + ", " + text_of(out) + ")");
  const Gradients g = linear_gradients(x, w, dy, rows, in, out);
  gives("dx", g.dx, in);
  gives("dw", g.dw, in);
  gives("db", g.db);
}

void check() {
  check(1, 1, 1);
  check(1, 3, 2);
  check(3, 2, 2);
  check(2, 2, 3);
}

}  // namespace eddy_learn
