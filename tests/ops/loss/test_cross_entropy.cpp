// Cross-entropy beyond what every op is tested for: closed forms, ignored rows, its gradient's sum and error
// texts.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/loss/cross_entropy.h"
#include "ops/ops.h"
#include "tensor/base/error.h"

using namespace eddy;
using namespace eddy::detail;

namespace {

Tensor targets_of(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("cross_entropy of equal logits is the logarithm of the classes") {
  const Tensor loss = cross_entropy(Tensor::full({3, 7}, 1000, Dtype::f64), targets_of({0, 3, 6}));
  CHECK(std::abs(loss.item() - std::log(7.0)) <= 4 * std::numeric_limits<double>::epsilon());
}

TEST_CASE("cross_entropy averages over the rows that are not ignored") {
  const Tensor logits = sample_normal({4, 5}, "logits");
  const Tensor targets = targets_of({1, 9, 4, 9});
  const std::vector<double> rows = cross_entropy_rows(logits, targets, 9).to_vector<double>();
  CHECK(rows[1] == 0);
  CHECK(rows[3] == 0);
  const double loss = cross_entropy(logits, targets, 9).item();
  CHECK(std::abs(loss - (rows[0] + rows[2]) / 2) <= 4 * std::numeric_limits<double>::epsilon());
}

TEST_CASE("cross_entropy without any scored row is zero with a zero gradient") {
  const Tensor logits = Tensor::full({2, 3}, std::numeric_limits<double>::quiet_NaN(), Dtype::f64);
  require_grad(logits);
  const Tensor loss = cross_entropy(logits, targets_of({-1, -1}));
  CHECK(loss.item() == 0);
  backward(loss);
  CHECK(grad(logits).to_vector<double>() == std::vector<double>(6, 0));
}

TEST_CASE("cross_entropy never reads an ignored row") {
  const Tensor logits = raw::copy(sample_normal({3, 5}, "logits"));
  raw::fill(raw::select(logits, 0, 1), std::numeric_limits<double>::quiet_NaN());
  require_grad(logits);
  const Tensor loss = cross_entropy(logits, targets_of({0, -1, 2}));
  CHECK(std::isfinite(loss.item()));
  backward(loss);
  for (const double d : grad(logits).to_vector<double>()) CHECK(std::isfinite(d));
}

TEST_CASE("cross_entropy stays exact for large logits") {
  // The other class is e^-2 away: log(1 + e^-2), although both logits are 1e6.
  const Tensor logits = Tensor::from(std::vector<float>{1000000, 999998}, {1, 2});
  const double loss = cross_entropy(logits, targets_of({0})).item();
  CHECK(std::abs(loss - std::log1p(std::exp(-2.0))) <= 8 * std::numeric_limits<float>::epsilon());
}

TEST_CASE("cross_entropy of an impossible target is infinite") {
  const double low = -std::numeric_limits<double>::infinity();
  CHECK(std::isinf(cross_entropy(Tensor::from(std::vector<double>{0, low}, {1, 2}), targets_of({1})).item()));
}

TEST_CASE("cross_entropy keeps targets of leading axes and per-row losses have their shape") {
  const Tensor logits = sample_normal({2, 3, 5}, "logits");
  const Tensor targets = sample_indices({2, 3}, "targets", 5);
  CHECK(cross_entropy_rows(logits, targets).shape() == Shape{2, 3});
}

TEST_CASE("cross_entropy_rows weighs rows in the gradient, and their mean has that of cross_entropy") {
  const Tensor logits = sample_normal({2, 3, 5}, "logits");
  const Tensor targets = targets_of({4, 0, 9, 2, 1, 3}).reshape({2, 3});  // 9 is ignored
  const auto gradient = [&](const auto& loss_of) {
    const Tensor x = raw::copy(logits);
    require_grad(x);
    backward(loss_of(x));
    return grad(x);
  };
  const Tensor mean = gradient([&](const Tensor& x) { return cross_entropy(x, targets, 9); });
  const Tensor rows = gradient([&](const Tensor& x) { return sum(cross_entropy_rows(x, targets, 9)) / 5.0; });
  CHECK(max(abs(rows - mean)).item() <= 1e-16);
  const Tensor weights = Tensor::from(std::vector<double>{2, 0, 3, 1, -1, 0.5}, {2, 3});
  const Tensor weighted =
      gradient([&](const Tensor& x) { return sum(cross_entropy_rows(x, targets, 9) * weights); });
  CHECK(max(abs(weighted - mean * weights.reshape({2, 3, 1}) * 5.0)).item() <= 1e-15);
  const NoGrad no_grad;
  CHECK(!requires_grad(cross_entropy_rows(require_grad(logits), targets, 9)));
}

TEST_CASE("cross_entropy names a target that is out of range") {
  const Tensor logits = Tensor::zeros({3, 5});
  CHECK_THROWS_WITH_AS(cross_entropy(logits, targets_of({0, 5, 1})),
                       doctest::Contains("cross_entropy: the target of row 1 is 5 with 5 classes"),
                       ValueError);
  CHECK_THROWS_WITH_AS(cross_entropy_rows(logits, targets_of({0, 1, -2})),
                       doctest::Contains("cross_entropy_rows: the target of row 2 is -2"), ValueError);
  CHECK_THROWS_AS(cross_entropy(logits, targets_of({0, 1, -1}), -100), ValueError);
  CHECK_THROWS_AS(cross_entropy(Tensor::zeros({1, 0}), targets_of({0})), ValueError);
}

TEST_CASE("cross_entropy names shapes and dtypes that do not fit") {
  const Tensor logits = Tensor::zeros({3, 5});
  CHECK_THROWS_WITH_AS(cross_entropy(logits, targets_of({0, 1})),
                       doctest::Contains("cross_entropy: logits [3, 5] and targets [2]"), ShapeError);
  CHECK_THROWS_WITH_AS(cross_entropy(logits, Tensor::zeros({3})),
                       doctest::Contains("cross_entropy: targets are f32"), DtypeError);
  CHECK_THROWS_AS(cross_entropy(Tensor::zeros({}), targets_of({0})), ShapeError);
  CHECK_THROWS_AS(cross_entropy(Tensor::zeros({3, 5}, Dtype::i64), targets_of({0, 1, 2})), DtypeError);
  CHECK_THROWS_AS(cross_entropy(logits, Tensor()), ValueError);
}

TEST_CASE_TEMPLATE("loss and gradient of rows at once have the bits of one after the other", T, float,
                   double) {
  constexpr Dtype dtype = std::is_same_v<T, float> ? Dtype::f32 : Dtype::f64;
  for (const std::int64_t classes : {1, 7, 37, 1031, 20011}) {
    const Tensor logits = raw::cast(sample_normal({4, classes}, "logits", 3), dtype);
    const Tensor targets = targets_of({0, classes - 1, -1, classes / 2});
    const std::int64_t* const numbers = targets.data<std::int64_t>();
    const auto rows = [&] { return Tensor::empty({4}, dtype, kCpu); };
    const Tensor one = Tensor::full({}, 1, dtype), losses = rows(), tops = rows(), inverses = rows();
    const Tensor dlogits = Tensor::empty(logits.shape(), dtype, kCpu);
    cross_entropy_forward_slot(kCpu, {dtype, 4, classes, classes, -1, logits.raw_data(), numbers,
                                      losses.raw_data(), tops.raw_data(), inverses.raw_data()});
    cross_entropy_backward_slot(
        kCpu, {dtype, 4, classes, classes, -1, one.raw_data(), logits.raw_data(), numbers, tops.raw_data(),
               inverses.raw_data(), one.raw_data(), dlogits.raw_data(), 0});
    for (const std::int64_t stride : {classes, classes + 3}) {
      const Tensor got = raw::narrow(Tensor::zeros({4, stride}, dtype), 1, 0, classes), got_losses = rows();
      raw::copy_into(got, logits);
      cross_entropy_rows_slot(
          kCpu, {dtype, 4, classes, stride, -1, got.raw_data(), numbers, got_losses.raw_data()});
      CHECK(got_losses.to_vector<T>() == losses.to_vector<T>());
      CHECK(raw::contiguous(got).to_vector<T>() == dlogits.to_vector<T>());
    }
  }
}
