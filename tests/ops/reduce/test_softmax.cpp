// Softmax beyond what every op is tested for: hidden entries, rows without any, infinities and error texts.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/softmax.h"
#include "tensor/base/error.h"

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
  const std::vector<float> y = softmax(x, {.causal = true}).to_vector<float>();
  CHECK(y[0] == 1.0f);
  CHECK(y[1] == 0.0f);
  CHECK(y[2] == 0.0f);
  CHECK(y[3] == 0.5f);
  CHECK(y[5] == 0.0f);
}

TEST_CASE("masked entries are exactly zero whatever they hold") {
  const Tensor x = f32({1, kNan, kInfinity, 1}, {1, 4});
  CHECK(softmax(x, {.mask = mask_of({1, 0, 0, 1}, {4})}).to_vector<float>() ==
        std::vector<float>{0.5f, 0, 0, 0.5f});
}

TEST_CASE("a NaN in a visible entry is not hidden") {
  for (const float y : softmax(f32({1, kNan, 2}, {3})).to_vector<float>()) CHECK(std::isnan(y));
  CHECK(std::isnan(log_softmax(f32({1, kNan, 2}, {3})).to_vector<float>()[0]));
}

TEST_CASE("rows that see nothing are zero and pass no gradient") {
  const Tensor x = f32({1, 2, 3, 4}, {2, 2});
  require_grad(x);
  const Tensor y = softmax(x, {.mask = mask_of({0, 1}, {2, 1})});
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
  CHECK(raw::narrow(softmax(x, {.causal = true}), 0, 0, 40).to_vector<float>() ==
        raw::narrow(softmax(changed, {.causal = true}), 0, 0, 40).to_vector<float>());
}

TEST_CASE("causal and mask hide together") {
  const Tensor y = softmax(Tensor::zeros({3, 3}), {.causal = true, .mask = mask_of({0, 1, 1}, {3})});
  CHECK(y.to_vector<float>() == std::vector<float>{0, 0, 0, 0, 1, 0, 0, 0.5f, 0.5f});
}

TEST_CASE("a band of softmax shows what the same mask shows and reads nothing else") {
  // A block of 3 queries behind 2 cached keys: key t is at distance j + 2 - t.
  const Tensor x = raw::cast(sample_normal({2, 3, 5}, "band"), Dtype::f32);
  const Tensor hidden = raw::copy(x);
  const std::vector<std::uint8_t> seen = {1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0};  // distances 1 .. 3
  for (std::size_t i = 0; i < 30; ++i)
    if (seen[i % 15] == 0) hidden.mutable_data<float>()[i] = i % 2 == 0 ? kNan : kInfinity;
  const Tensor want = softmax(x, {.mask = mask_of(seen, {3, 5})});
  CHECK(softmax(hidden, {.band = {1, 3}}).to_vector<float>() == want.to_vector<float>());
  CHECK(softmax(hidden, {.causal = true, .band = {1, 3}}).to_vector<float>() == want.to_vector<float>());
}

TEST_CASE("a band beyond every distance hides all and one around every distance hides nothing") {
  const Tensor x = raw::cast(sample_normal({4, 6}, "far"), Dtype::f32);
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  const std::vector<float> zeros(24, 0.0f);
  for (const AttentionBand band : {AttentionBand{6, 9}, {-9, -4}, {kLast, kLast}, {-kLast, -kLast}})
    CHECK(softmax(x, {.band = band}).to_vector<float>() == zeros);
  for (const AttentionBand band : {AttentionBand{-3, 5}, {-kLast, kLast}, {-3, kLast}, {-kLast, 5}})
    CHECK(softmax(x, {.band = band}).to_vector<float>() == softmax(x).to_vector<float>());
}

TEST_CASE("the gradient outside of a band is zero and is added to what is there") {
  const Tensor x = raw::cast(sample_normal({3, 5}, "beta"), Dtype::f32);
  require_grad(x);
  const Tensor y = softmax(x, {.band = {1, 2}}), again = softmax(x, {.band = {1, 2}});
  const Tensor dy = Tensor::full({3, 5}, kNan);
  for (int row = 0; row < 3; ++row)
    for (int key = row; key < row + 2; ++key)
      dy.mutable_data<float>()[row * 5 + key] = static_cast<float>(key);
  backward(y, dy);
  const std::vector<float> once = grad(x).to_vector<float>();
  backward(again, dy);
  const std::vector<float> twice = grad(x).to_vector<float>();
  for (std::size_t i = 0; i < 15; ++i) {
    const bool seen = i % 5 >= i / 5 && i % 5 < i / 5 + 2;
    CHECK((once[i] != 0) == seen);
    CHECK(twice[i] == 2 * once[i]);
  }
}

TEST_CASE("a bias of softmax stands for the sum and its gradient sums over what repeats") {
  const Tensor x = sample_normal({2, 3, 4}, "x"), bias = sample_normal({3, 1}, "bias");
  const Tensor row = sample_normal({4}, "row"), dy = sample_normal({2, 3, 4}, "dy");
  const Tensor sums = add(x, row);
  require_grad(sums);
  const Tensor want = softmax(sums, {.causal = true});
  backward(want, dy);
  require_grad(row);  // alone: x is a constant here
  const Tensor y = softmax(x, {.causal = true, .bias = row});
  backward(y, dy);
  CHECK(y.to_vector<double>() == want.to_vector<double>());
  const std::vector<double> d = grad(sums).to_vector<double>(), got = grad(row).to_vector<double>();
  for (std::size_t k = 0; k < 4; ++k) {
    double sum = 0;
    for (std::size_t i = 0; i < 6; ++i) sum += d[i * 4 + k];
    CHECK(std::abs(got[k] - sum) <= 1e-15);
  }
  // One number for a whole row changes nothing, so it has no gradient.
  require_grad(bias);
  backward(softmax(x, {.bias = bias}), dy);
  for (const double db : grad(bias).to_vector<double>()) CHECK(std::abs(db) <= 1e-15);
}

TEST_CASE("a bias of negative infinity hides and one under the mask is not read") {
  CHECK(softmax(Tensor::zeros({2, 3}), {.bias = f32({-kInfinity, 0, 0}, {3})}).to_vector<float>() ==
        std::vector<float>{0, 0.5f, 0.5f, 0, 0.5f, 0.5f});
  CHECK(softmax(Tensor::zeros({1, 3}), {.mask = mask_of({1, 0, 1}, {3}), .bias = f32({1, kNan, 1}, {3})})
            .to_vector<float>() == std::vector<float>{0.5f, 0, 0.5f});
}

TEST_CASE("a bias of softmax may be f32 beside bf16") {
  const Tensor x = raw::cast(sample_normal({2, 8}, "x"), Dtype::bf16);
  const Tensor bias = raw::cast(sample_normal({8}, "bias"), Dtype::f32);
  require_grad(bias);
  const Tensor y = softmax(x, {.bias = bias});
  CHECK(y.dtype() == Dtype::bf16);
  const Tensor want = raw::cast(softmax(raw::cast(x, Dtype::f32), {.bias = detach(bias)}), Dtype::bf16);
  CHECK(raw::cast(y, Dtype::f32).to_vector<float>() == raw::cast(want, Dtype::f32).to_vector<float>());
  backward(y, x);
  CHECK(grad(bias).dtype() == Dtype::f32);
}

TEST_CASE("softmax names what is wrong with its inputs") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(softmax(Tensor::zeros({})), doctest::Contains("softmax: a scalar has no last axis"),
                       ShapeError);
  CHECK_THROWS_AS(log_softmax(Tensor::zeros({})), ShapeError);
  CHECK_THROWS_WITH_AS(softmax(Tensor::zeros({3}), {.causal = true}), doctest::Contains("[queries, keys]"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(softmax(x, {.mask = Tensor::zeros({3})}),
                       doctest::Contains("softmax: the mask is f32"), DtypeError);
  CHECK_THROWS_WITH_AS(softmax(x, {.mask = Tensor::zeros({2}, Dtype::u8)}),
                       doctest::Contains("softmax: a mask [2] for x [2, 3]"), ShapeError);
  CHECK_THROWS_AS(softmax(Tensor::zeros({3}), {.mask = Tensor::zeros({2, 3}, Dtype::u8)}), ShapeError);
  CHECK_THROWS_AS(softmax(Tensor::zeros({3}, Dtype::i32)), DtypeError);
  CHECK_THROWS_WITH_AS(softmax(Tensor::zeros({3}), {.band = {0, 2}}), doctest::Contains("[queries, keys]"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(softmax(x, {.causal = true, .band = {-4, -1}}),
                       doctest::Contains("softmax: no distance lies in the band 0 .. -1, causal"),
                       ValueError);
  CHECK_THROWS_WITH_AS(softmax(x, {.bias = Tensor::zeros({3}, Dtype::f64)}),
                       doctest::Contains("softmax: f32 and f64"), DtypeError);
  CHECK_THROWS_WITH_AS(softmax(x, {.bias = Tensor::zeros({3}, Dtype::u8)}),
                       doctest::Contains("softmax: bias is u8"), DtypeError);
  CHECK_THROWS_WITH_AS(softmax(x, {.bias = Tensor::zeros({2})}),
                       doctest::Contains("softmax: a bias [2] for x [2, 3]"), ShapeError);
  CHECK_THROWS_AS(log_softmax(Tensor()), ValueError);
}
