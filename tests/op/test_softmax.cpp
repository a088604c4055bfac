// Softmax beyond what every op is tested for: hidden entries, rows without any, infinities and error texts.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/op_spec.h"
#include "ops/softmax.h"
#include "tensor/error.h"

using namespace eddy;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor f32(const std::vector<float>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}
Tensor mask_of(const std::vector<std::uint8_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

}  // namespace

TEST_CASE("softmax does not overflow and its rows sum to 1") {
  const Tensor y = softmax(f32({1e30f, 1e30f, -1e30f, 300, 300, 299}, {2, 3}));
  const std::vector<float> values = y.to_vector<float>();
  CHECK(values[0] == 0.5f);
  CHECK(values[2] == 0.0f);
  const float row_sum = values[3] + values[4] + values[5];
  CHECK(std::abs(row_sum - 1) <= 4 * std::numeric_limits<float>::epsilon());
}

TEST_CASE("causal softmax gives exactly zero to later keys whatever they hold") {
  const Tensor x = f32({1, kNan, kInfinity, 1, 1, kNan, 1, 1, 1}, {3, 3});
  const std::vector<float> y = softmax(x, SoftmaxMode::causal).to_vector<float>();
  CHECK(y[0] == 1.0f);
  CHECK(y[1] == 0.0f);
  CHECK(y[2] == 0.0f);
  CHECK(y[3] == 0.5f);
  CHECK(y[5] == 0.0f);
}

TEST_CASE("masked entries are exactly zero whatever they hold") {
  const Tensor x = f32({1, kNan, kInfinity, 1}, {1, 4});
  CHECK(softmax(x, SoftmaxMode::plain, mask_of({1, 0, 0, 1}, {4})).to_vector<float>() ==
        std::vector<float>{0.5f, 0, 0, 0.5f});
}

TEST_CASE("a NaN in a visible entry is not hidden") {
  for (const float y : softmax(f32({1, kNan, 2}, {3})).to_vector<float>()) CHECK(std::isnan(y));
  CHECK(std::isnan(log_softmax(f32({1, kNan, 2}, {3})).to_vector<float>()[0]));
}

TEST_CASE("rows that see nothing are zero and pass no gradient") {
  const Tensor x = f32({1, 2, 3, 4}, {2, 2});
  require_grad(x);
  const Tensor y = softmax(x, SoftmaxMode::plain, mask_of({0, 1}, {2, 1}));
  CHECK(y.to_vector<float>()[0] == 0.0f);
  CHECK(y.to_vector<float>()[1] == 0.0f);
  backward(y, f32({kInfinity, kNan, 1, 2}, {2, 2}));
  const std::vector<float> dx = grad(x).to_vector<float>();
  CHECK(dx[0] == 0.0f);
  CHECK(dx[1] == 0.0f);
  CHECK(dx[3] != 0.0f);
}

TEST_CASE("scores of negative infinity count as hidden") {
  CHECK(softmax(f32({-kInfinity, 0, 0}, {3})).to_vector<float>() == std::vector<float>{0, 0.5f, 0.5f});
  CHECK(softmax(Tensor::full({40}, -kInfinity)).to_vector<float>() == std::vector<float>(40, 0.0f));
}

TEST_CASE("a causal row does not depend on later keys to the bit") {
  const Tensor x = raw::cast(sample_normal({70, 70}, "causal"), Dtype::f32);
  const Tensor changed = raw::copy(x);
  raw::fill(raw::narrow(raw::narrow(changed, 0, 0, 40), 1, 40, 30), 9);
  CHECK(raw::narrow(softmax(x, SoftmaxMode::causal), 0, 0, 40).to_vector<float>() ==
        raw::narrow(softmax(changed, SoftmaxMode::causal), 0, 0, 40).to_vector<float>());
}

TEST_CASE("causal and mask hide together") {
  const Tensor y = softmax(Tensor::zeros({3, 3}), SoftmaxMode::causal, mask_of({0, 1, 1}, {3}));
  CHECK(y.to_vector<float>() == std::vector<float>{0, 0, 0, 0, 1, 0, 0, 0.5f, 0.5f});
}

TEST_CASE("softmax names what is wrong with its inputs") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(softmax(Tensor::zeros({})), doctest::Contains("softmax: a scalar has no last axis"),
                       ShapeError);
  CHECK_THROWS_AS(log_softmax(Tensor::zeros({})), ShapeError);
  CHECK_THROWS_WITH_AS(softmax(Tensor::zeros({3}), SoftmaxMode::causal), doctest::Contains("[queries, keys]"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(softmax(x, SoftmaxMode::plain, Tensor::zeros({3})),
                       doctest::Contains("softmax: the mask is f32"), DtypeError);
  CHECK_THROWS_WITH_AS(softmax(x, SoftmaxMode::plain, Tensor::zeros({2}, Dtype::u8)),
                       doctest::Contains("softmax: a mask [2] for x [2, 3]"), ShapeError);
  CHECK_THROWS_AS(softmax(Tensor::zeros({3}), SoftmaxMode::plain, Tensor::zeros({2, 3}, Dtype::u8)),
                  ShapeError);
  CHECK_THROWS_AS(softmax(Tensor::zeros({3}, Dtype::i32)), DtypeError);
  CHECK_THROWS_AS(log_softmax(Tensor()), ValueError);
}
