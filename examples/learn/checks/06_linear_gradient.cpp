// hint: Take one dy[r, o] at a time. In y[r, o], the number x[r, i] is multiplied by w[o, i]: so dx[r, i] gets
//       dy[r, o] w[o, i], and dw[o, i] gets dy[r, o] x[r, i].
// hint: All of them are +=: x[r, i] goes into `out` numbers, w[o, i] into `rows`.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

Numbers wanted_linear(const Numbers& x, const Numbers& w, const Numbers& b, Size rows, Size in, Size out) {
  Numbers y(rows * out);
  for (Size r = 0; r < rows; ++r)
    for (Size o = 0; o < out; ++o) {
      y[r * out + o] = b[o];
      for (Size i = 0; i < in; ++i) y[r * out + o] += x[r * in + i] * w[o * in + i];
    }
  return y;
}

void check(Size rows, Size in, Size out) {
  const std::string sizes = " at rows " + text_of(rows) + ", in " + text_of(in) + ", out " + text_of(out);
  const Numbers x = numbers(rows * in, 1), w = numbers(out * in, 2), b = numbers(out, 3);
  const Numbers dy = numbers(rows * out, 4);
  const Gradients g = linear_gradients(x, w, dy, rows, in, out);
  const auto of_x = [&](const Numbers& v) { return dot(dy, wanted_linear(v, w, b, rows, in, out)); };
  const auto of_w = [&](const Numbers& v) { return dot(dy, wanted_linear(x, v, b, rows, in, out)); };
  const auto of_b = [&](const Numbers& v) { return dot(dy, wanted_linear(x, w, v, rows, in, out)); };
  near("dx" + sizes, g.dx, slopes(of_x, x), in, 1e-7);
  near("dw" + sizes, g.dw, slopes(of_w, w), in, 1e-7);
  near("db" + sizes, g.db, slopes(of_b, b), 0, 1e-7);
}

int check() {
  check(1, 1, 1);
  check(1, 3, 2);
  check(4, 3, 2);
  check(2, 5, 7);
  return result();
}

}  // namespace eddy_learn
