// Exercise 9: an op of your own
//
// A function of Eddy's tensors with a gradient that you write: softsign.
//
//   y  = x / (1 + |x|)
//   dx = dy / (1 + |x|)^2
//
// record() leaves a node on the tape: its name, its inputs, its result, what the gradient needs to keep, and a function
// that is called with dy (v.dy()) and hands each input its gradient (v.sink.accumulate(input, gradient)). That function
// works without the tape; raw::contiguous makes a view's numbers lie in order. In Eddy: examples/04_own_op.cpp, which
// writes kernels and typed errors too.
#include <eddy/eddy.h>
#include <cmath>
#include <vector>

using namespace eddy;

// shapes: x of any shape.
// dtypes: f64.
Tensor softsign(const Tensor& x) {
  std::vector<double> numbers = x.to_vector<double>();
  for (double& number : numbers) number = number / (1 + std::abs(number));
  const Tensor y = Tensor::from(numbers, x.shape());
  return record("softsign", {x}, y, {x}, [](VjpContext& v) {
    const Tensor dy = raw::contiguous(v.dy());
    v.sink.accumulate(0, dy);  // your code: v.saved(0) is x
  });
}
