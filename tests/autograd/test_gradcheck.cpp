// The gradient check must accept what is right and refuse what is wrong.
#include "autograd/gradcheck.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tensor/base/error.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::tiny;

namespace {

using Values = std::vector<double>;

}  // namespace

TEST_CASE("gradcheck accepts right gradients to 1e-9 and passes integers through") {
  const Tensor a = vec({0.3, -1.2, 2.5}), b = vec({1.5, 0.2, -0.7});
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{4, 5}, {2});
  const auto fn = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    CHECK(in[1].same(ids));
    return {tanh(mul(in[0], in[2])), ids, sum(mul(in[2], in[2])), in[0]};
  };
  const GradcheckResult result = gradcheck(fn, {a, ids, b});
  INFO(result.describe());
  CHECK(result.ok);
  CHECK(result.compared == 6);
  CHECK(result.error <= 1e-9);
  CHECK_FALSE(requires_grad(a));
  CHECK(a.to_vector<double>() == Values{0.3, -1.2, 2.5});
}

TEST_CASE("gradcheck names the worst element of a wrong gradient") {
  const auto wrong_at_1 = [](const std::vector<Tensor>& in) {
    const Tensor y = map(in[0], [](double v) { return v * v * v; });
    const Tensor x = in[0];
    return std::vector<Tensor>{record("cube", {x}, y, {x}, [](VjpContext& c) {
      Tensor g = zip(c.dy(), c.saved(0), [](double d, double v) { return 3 * d * v * v; });
      g.mutable_data<double>()[1] *= 1.001;
      c.sink.accumulate(0, g);
    })};
  };
  const GradcheckResult result = gradcheck(wrong_at_1, {vec({1, 2, 3})});
  CHECK_FALSE(result.ok);
  CHECK(result.input == 0);
  CHECK(result.index == std::vector<std::int64_t>{1});
  CHECK(std::abs(result.analytic / result.numeric - 1.001) <= 1e-9);
  CHECK(contains(result.describe(), "failed: input 0 at [1]"));
}

TEST_CASE("gradcheck fails on a NaN and on a result that forgot its graph") {
  const auto nan = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{scale(in[0], std::nan(""))};
  };
  CHECK_FALSE(gradcheck(nan, {vec({1, 2})}).ok);
  const auto cut = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{detach(scale(in[0], 2))}; };
  CHECK_FALSE(gradcheck(cut, {vec({1, 2})}).ok);
}

TEST_CASE("gradcheck keeps strides and handles kinks nearby and large numbers and empty tensors") {
  const Tensor x = raw::transpose(Tensor::from(Values{1, -2, 3, 4e-5, -5, 6e6}, {2, 3}), 0, 1);
  const auto relu = [](const std::vector<Tensor>& in) {
    CHECK_FALSE(in[0].contiguous());
    const Tensor y = map(in[0], [](double v) { return v > 0 ? v : 0; });
    const Tensor input = in[0];
    return std::vector<Tensor>{record("relu", {input}, y, {y}, [](VjpContext& c) {
      c.sink.accumulate(0, zip(c.dy(), c.saved(0), [](double d, double v) { return v > 0 ? d : 0; }));
    })};
  };
  const GradcheckResult result = gradcheck(relu, {x});
  INFO(result.describe());
  CHECK(result.ok);
  const auto twice = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{scale(in[0], 2)}; };
  CHECK(gradcheck(twice, {Tensor::zeros({0, 3}, Dtype::f64)}).describe() == "gradcheck: nothing to compare");
  const Tensor repeated = raw::expand(vec({1}), {4});
  CHECK(gradcheck(twice, {repeated}).ok);
  CHECK_THROWS_AS(static_cast<void>(gradcheck(twice, {Tensor::zeros({2})})), DtypeError);
}
