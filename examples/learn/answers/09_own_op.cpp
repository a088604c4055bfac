// The answer to exercise 9.
#include <eddy/eddy.h>
#include <cmath>
#include <vector>

using namespace eddy;

Tensor softsign(const Tensor& x) {
  std::vector<double> numbers = x.to_vector<double>();
  for (double& number : numbers) number = number / (1 + std::abs(number));
  const Tensor y = Tensor::from(numbers, x.shape());
  return record("softsign", {x}, y, {x}, [](VjpContext& v) {
    const std::vector<double> of_x = v.saved(0).to_vector<double>();
    std::vector<double> dx = v.dy().to_vector<double>();
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] /= (1 + std::abs(of_x[i])) * (1 + std::abs(of_x[i]));
    v.sink.accumulate(0, Tensor::from(dx, v.dy().shape()));
  });
}
