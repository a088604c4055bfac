// needs: eddy
// hint: to_vector<double>() of x and of dy gives you their numbers, in order, and Tensor::from(numbers, shape) makes a
//       tensor of them.
// hint: The gradient has the shape of x: dy[i] / (1 + |x[i]|)^2 at every place.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

// Asks for the value, and for the gradient of the sum of y times dy, a cotangent that the student can see.
void check(const std::vector<double>& x, const std::vector<double>& dy, std::int64_t rows,
           std::int64_t columns, bool turned) {
  Tensor in = Tensor::from(x, {rows, columns});
  const std::size_t width = static_cast<std::size_t>(turned ? rows : columns);
  require_grad(in);
  asks("softsign(x), x " + text_of(x, static_cast<std::size_t>(columns)) + (turned ? " transposed" : "") +
       ", dy " + text_of(dy, width));
  const Tensor y = softsign(turned ? transpose(in, 0, 1) : in);
  gives("y", y.to_vector<double>(), width);
  gives("shape of y", to_string(y.shape()));
  backward(sum(y * Tensor::from(dy, y.shape())));
  const Tensor dx = grad(in);
  gives("shape of dx", dx.defined() ? to_string(dx.shape()) : "none");
  gives("dx", dx.defined() ? dx.to_vector<double>() : std::vector<double>{},
        static_cast<std::size_t>(columns));
}

void check() {
  check({3}, {1}, 1, 1, false);
  check({0, 1, -1}, {1, 2, 3}, 1, 3, false);
  check({1, -2, 3, -1, 0, 2}, {2, -1, 1, 4, 3, -2}, 2, 3, false);
  check({1, -2, 3, -1, 0, 2}, {2, -1, 1, 4, 3, -2}, 2, 3, true);
  check({-9, 99}, {100, 10000}, 1, 2, false);
}

}  // namespace eddy_learn
