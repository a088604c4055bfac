// Layer normalisation beyond what every op is tested for: its statistics, the kernels on the rows of one time step and
// on narrow rows, and error texts.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"
#include "tests/support/isa_levels.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;

TEST_CASE("layer_norm gives rows of mean 0 and variance 1") {
  const Tensor x = sample_normal({4, 100}, "layer_norm", 5);
  const std::vector<double> y = layer_norm(x, Tensor(), Tensor(), 0).to_vector<double>();
  for (std::size_t row = 0; row < 4; ++row) {
    double total = 0, squares = 0;
    for (std::size_t i = 0; i < 100; ++i) {
      total += y[row * 100 + i];
      squares += y[row * 100 + i] * y[row * 100 + i];
    }
    CHECK(std::abs(total) <= 100 * 8 * std::numeric_limits<double>::epsilon());
    CHECK(std::abs(squares / 100 - 1) <= 16 * std::numeric_limits<double>::epsilon());
  }
}

TEST_CASE("layer_norm of equal elements is the bias") {
  const Tensor y = layer_norm(Tensor::full({2, 3}, 7), Tensor::full({3}, 2), Tensor::full({3}, 0.25));
  CHECK(y.to_vector<float>() == std::vector<float>(6, 0.25f));
}

TEST_CASE("layer_norm keeps the variance of a row far from zero") {
  // sum(x^2) - n mean^2 would lose all digits here: 1e8 against a variance of 1.
  const Tensor x = Tensor::from(std::vector<float>{10001, 9999, 10001, 9999}, {1, 4});
  CHECK(layer_norm(x, Tensor(), Tensor(), 0).to_vector<float>() == std::vector<float>{1, -1, 1, -1});
}

TEST_CASE("layer_norm kernels called step by step agree with the op over all steps") {
  constexpr std::int64_t kBatch = 70, kTime = 3, kWidth = 21;
  const Tensor x = sample_normal({kBatch, kTime, kWidth}, "steps"),
               dy = sample_normal({kBatch, kTime, kWidth}, "dy");
  const Tensor weight = sample_normal({kWidth}, "weight"), bias = sample_normal({kWidth}, "bias");
  for (const Tensor& leaf : {x, weight, bias}) require_grad(leaf);
  const Tensor y = layer_norm(x, weight, bias);
  backward(y, dy);

  const Tensor step_y = Tensor::empty(x.shape(), Dtype::f64),
               step_dx = Tensor::full(x.shape(), 1, Dtype::f64);
  const Shape partials{norm_blocks(kCpu, kBatch), kWidth};
  const Tensor dweight = Tensor::empty(partials, Dtype::f64), dbias = Tensor::empty(partials, Dtype::f64);
  const Tensor mean = Tensor::empty({kBatch}, Dtype::f64), rstd = Tensor::empty({kBatch}, Dtype::f64);
  constexpr std::int64_t kStride = kTime * kWidth;
  for (std::int64_t t = 0; t < kTime; ++t) {
    const Tensor at_x = raw::select(x, 1, t), at_y = raw::select(step_y, 1, t);
    const Tensor at_dy = raw::select(dy, 1, t), at_dx = raw::select(step_dx, 1, t);
    layer_norm_forward_slot(
        kCpu, {Dtype::f64, kBatch, kWidth, at_x.raw_data(), kStride, weight.raw_data(), bias.raw_data(),
               at_y.raw_data(), kStride, mean.raw_data(), rstd.raw_data(), 1e-5});
    layer_norm_backward_slot(
        kCpu, {Dtype::f64, kBatch, kWidth, at_dy.raw_data(), kStride, at_x.raw_data(), kStride,
               weight.raw_data(), mean.raw_data(), rstd.raw_data(), at_dx.raw_data(), kStride, 1,
               dweight.raw_data(), dbias.raw_data(), t == 0 ? 0.0f : 1.0f});
  }
  CHECK(step_y.to_vector<double>() == y.to_vector<double>());
  const auto close = [](const Tensor& got, const Tensor& want, double offset) {
    const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
    // 210 terms of size below 16, each rounded once.
    for (std::size_t i = 0; i < b.size(); ++i)
      CHECK(std::abs(a[i] - offset - b[i]) <= 210 * 16 * std::numeric_limits<double>::epsilon());
  };
  close(step_dx, grad(x), 1);
  close(sum_to(dweight, {kWidth}), grad(weight), 0);
  close(sum_to(dbias, {kWidth}), grad(bias), 0);
}

TEST_CASE("norms of narrow rows, which are taken together, have the bits of each row alone") {
  constexpr std::int64_t kRows = 37;
  using Norm = SumAndNorm (*)(const Tensor&, const Tensor&, const Tensor&);
  const Norm norms[] = {[](const Tensor& x, const Tensor& delta, const Tensor& weight) {
                          return add_layer_norm(x, delta, weight);
                        },
                        [](const Tensor& x, const Tensor& delta, const Tensor& weight) {
                          return add_rms_norm(x, delta, weight);
                        }};
  on_every_isa_level([&] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64})
      for (const std::int64_t width : {31, 32, 64, 96})
        for (const Norm norm : norms) {
          const auto sample = [&](const char* name) {
            return raw::cast(sample_normal({kRows, width}, name), dtype);
          };
          const Tensor x = sample("x"), delta = sample("delta"), dy = sample("dy"),
                       weight = raw::cast(sample_normal({width}, "weight"), dtype);
          const auto results = [&](std::int64_t row, std::int64_t rows) {
            const auto part = [&](const Tensor& all) { return raw::copy(raw::narrow(all, 0, row, rows)); };
            const Tensor some = part(x);
            require_grad(some);
            const SumAndNorm of_rows = norm(some, part(delta), weight);
            backward(of_rows.norm, part(dy));
            std::vector<double> all;
            for (const Tensor& t : {of_rows.sum, of_rows.norm, grad(some)})
              for (const double v : raw::cast(t, Dtype::f64).to_vector<double>()) all.push_back(v);
            return all;
          };
          const std::vector<double> together = results(0, kRows);
          const auto size = static_cast<std::size_t>(width);
          for (std::size_t row = 0; row < kRows; ++row) {
            const std::vector<double> alone = results(static_cast<std::int64_t>(row), 1);
            for (std::size_t part = 0; part < 3; ++part)
              CHECK(std::equal(alone.begin() + part * size, alone.begin() + (part + 1) * size,
                               together.begin() + (part * kRows + row) * size));
          }
        }
  });
}

TEST_CASE("layer_norm gives a gradient to its weight alone") {
  const Tensor x = sample_normal({5, 3}, "x"), weight = sample_normal({3}, "weight");
  require_grad(weight);
  backward(sum(layer_norm(x, weight)));
  const std::vector<double> want = sum_to(layer_norm(x, Tensor()), {3}).to_vector<double>();
  const std::vector<double> got = grad(weight).to_vector<double>();
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(std::abs(got[i] - want[i]) <= 32 * std::numeric_limits<double>::epsilon());
}

TEST_CASE("layer_norm names what is wrong with its inputs") {
  const Tensor x = Tensor::zeros({2, 3}), weight = Tensor::zeros({3});
  CHECK_THROWS_WITH_AS(layer_norm(Tensor::zeros({}), Tensor()), doctest::Contains("layer_norm: a scalar"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(layer_norm(x, Tensor::zeros({2})),
                       doctest::Contains("layer_norm: a weight [2] for x [2, 3]"), ShapeError);
  CHECK_THROWS_WITH_AS(layer_norm(x, weight, Tensor::zeros({1, 3})), doctest::Contains("a bias [1, 3]"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(layer_norm(x, Tensor::zeros({3}, Dtype::f64)),
                       doctest::Contains("layer_norm: f32 and f64"), DtypeError);
  CHECK_THROWS_WITH_AS(layer_norm(x, weight, Tensor(), -1), doctest::Contains("layer_norm: eps is -1"),
                       ValueError);
  CHECK_THROWS_AS(layer_norm(x, weight, Tensor(), std::nan("")), ValueError);
  CHECK_THROWS_AS(layer_norm(Tensor::zeros({2}, Dtype::i64), Tensor()), DtypeError);
}
