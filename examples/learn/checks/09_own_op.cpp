// needs: eddy
// hint: to_vector<double>() of x and of dy gives you their numbers, in order, and Tensor::from(numbers, shape) makes a
//       tensor of them.
// hint: The gradient has the shape of x: dy[i] / (1 + |x[i]|)^2 at every place.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  const auto check = [](const std::string& what, const Tensor& x) {
    const auto run = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{softsign(in[0])}; };
    const GradcheckResult found = gradcheck(run, {x});
    near(
        "the gradient of softsign for " + what + (found.input < 0 ? "" : ", element " + text_of(found.index)),
        found.analytic, found.ok ? found.analytic : found.numeric, found.ok ? 1e-6 : 0,
        "measured: what a small change of x does");
  };
  near("softsign(3)", softsign(Tensor::from(std::vector<double>{3}, {1})).item(), 0.75);
  check("x {0.5}", Tensor::from(std::vector<double>{0.5}, {1}));
  check("x [4, 5]", Tensor::from(numbers(20, 1), {4, 5}));
  check("x [4, 5] transposed", transpose(Tensor::from(numbers(20, 2), {4, 5}), 0, 1));
  check("x of large numbers", Tensor::from(std::vector<double>{-40, 100}, {2}));
  return result();
}

}  // namespace eddy_learn
