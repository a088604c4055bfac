// The methods of Tensor that are ops: each gives what its function gives, with its gradient. And what a tensor
// is not: a number, a bool, or a place to write a number to.
#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

#include "autograd/tape.h"
#include "ops/ops.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::test;

namespace {

template <class T>
concept HasSum = requires(const T& x) {
  x.sum();
};
template <class T>
concept HasSin = requires(const T& x) {
  x.sin();
};
static_assert(HasSum<Tensor> && !HasSin<Tensor>);
static_assert(!std::is_convertible_v<Tensor, int> && !std::is_convertible_v<Tensor, double>);
static_assert(!std::is_constructible_v<bool, Tensor> && !std::is_constructible_v<double, Tensor>);
static_assert(std::is_assignable_v<Tensor&, Tensor> && !std::is_assignable_v<const Tensor&, Tensor> &&
              !std::is_assignable_v<const Tensor&, double>);

void check_equal(const Tensor& got, const Tensor& want) {
  CHECK(got.shape() == want.shape());
  CHECK(raw::cast(got, Dtype::f64).to_vector<double>() == raw::cast(want, Dtype::f64).to_vector<double>());
}

}  // namespace

TEST_CASE("a method gives what the function of its name gives") {
  const Tensor x = counted({2, 3, 1});
  const auto pairs = [&]() -> std::vector<std::vector<Tensor>> {
    return {{x.sum(), sum(x)},
            {x.sum(1, true), sum(x, 1, true)},
            {x.mean(), mean(x)},
            {x.mean(-1), mean(x, -1)},
            {x.max(), max(x)},
            {x.max(1), max(x, 1)},
            {x.min(), min(x)},
            {x.min(1), min(x, 1)},
            {x.argmax(), argmax(x)},
            {x.argmax(1), argmax(x, 1)},
            {x.argmin(), argmin(x)},
            {x.argmin(1), argmin(x, 1)},
            {x.exp(), exp(x)},
            {(x + 1).log(), log(x + 1)},
            {x.sqrt(), sqrt(x)},
            {x.abs(), abs(x)},
            {x.tanh(), tanh(x)},
            {x.sigmoid(), sigmoid(x)},
            {x.relu(), relu(x)},
            {x.pow(3), pow(x, 3)},
            {x.clamp(1, 3), clamp(x, 1, 3)},
            {x[0].matmul(x[1].transpose(0, 1)), matmul(x[0], transpose(x[1], 0, 1))},
            {x.reshape({3, -1}), reshape(x, {3, -1})},
            {x.reshape(Shape{6}), reshape(x, Shape{6})},
            {x.flatten(), flatten(x)},
            {x.transpose(0, 1), transpose(x, 0, 1)},
            {x.permute({2, 0, 1}), permute(x, {2, 0, 1})},
            {x.squeeze(), squeeze(x)},
            {x.squeeze(-1), squeeze(x, -1)},
            {x.unsqueeze(0), unsqueeze(x, 0)},
            {x.narrow(1, 1, 2), narrow(x, 1, 1, 2)},
            {x.select(1, 2), select(x, 1, 2)},
            {x.expand({2, 3, 4}), expand(x, {2, 3, 4})}};
  };
  for (const std::vector<Tensor>& pair : pairs()) check_equal(pair[0], pair[1]);
}

TEST_CASE("gradients flow through methods") {
  const Tensor x = counted({2, 3});
  require_grad(x);
  backward((x.permute({1, 0}).unsqueeze(0) * 2.0).clamp(1, 7).sum());
  CHECK(grad(x).to_vector<double>() == std::vector<double>{0, 2, 2, 2, 0, 0});
}
