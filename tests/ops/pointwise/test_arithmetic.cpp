// What reads like arithmetic: operators with numbers on either side, comparisons, rows, argmax.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/tape.h"
#include "ops/cast/cast.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tensor/create.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::test;

using Floats = std::vector<float>;
using Bits = std::vector<std::uint8_t>;

Floats floats(const Tensor& x) {
  return x.to_vector<float>();
}
Bits bits(const Tensor& x) {
  return x.to_vector<std::uint8_t>();
}

}  // namespace

TEST_CASE("arithmetic: numbers on either side, and assignment makes a new tensor") {
  const Tensor x = tensor({1.f, 2.f, 4.f});
  CHECK(floats(x - 1.0) == Floats{0, 1, 3});
  CHECK(floats(1.0 - x) == Floats{0, -1, -3});
  CHECK(floats(1 + x) == Floats{2, 3, 5});
  CHECK(floats(x / 2.0) == Floats{0.5, 1, 2});
  CHECK(floats(8.0 / x) == Floats{8, 4, 2});
  CHECK(floats(x / 3) == Floats{1.f / 3, 2.f / 3, 4.f / 3});
  Tensor y = x;
  y += x;
  CHECK(floats(y) == Floats{2, 4, 8});
  CHECK(floats(x) == Floats{1, 2, 4});
  y -= 1;
  y *= x;
  y /= 2;
  CHECK(floats(y) == Floats{0.5, 3, 14});
  const Tensor half = Tensor::full({2}, 3, Dtype::bf16);
  CHECK((half / 2.0).dtype() == Dtype::bf16);
  CHECK(floats(raw::cast(1.0 / half, Dtype::f32)) ==
        floats(raw::cast(full({2}, 1.0 / 3, Dtype::bf16), Dtype::f32)));
  CHECK(contains(error_of<DtypeError>([&] { x + zeros({3}, Dtype::f64); }), "f32 and f64"));
  CHECK(contains(error_of<DtypeError>([&] { arange(3, Dtype::i64) * 2.0; }), "cast it first"));
}

TEST_CASE("arithmetic: gradients of numbers and of rows") {
  const auto check = [](const char* name, auto&& function) {
    const GradcheckResult result = gradcheck([&](const Tensors& in) { return Tensors{function(in[0])}; },
                                             {sample_uniform({3, 4}, name, 0.5, 2)});
    CHECK_MESSAGE(result.ok, result.describe());
  };
  check("minus", [](const Tensor& x) { return (2.0 - x) * (x - 1); });
  check("quotient", [](const Tensor& x) { return 2.0 / x + x / 4; });
  check("compound", [](const Tensor& x) {
    Tensor y = x;
    y *= x;
    y += 3;
    y /= x;
    y -= x;
    return y;
  });
  check("row", [](const Tensor& x) { return x[0] * x[-1]; });
  check("reshape", [](const Tensor& x) { return x.reshape({2, -1}) * 2; });
  check("masked", [](const Tensor& x) { return where(x > 1.0, x * x, x); });
  check("masked by numbers", [](const Tensor& x) { return where(x > 1.0, x, 0) + where(x > 1.5, 2.0, x); });
}

TEST_CASE("comparisons: u8, any dtype, false beside NaN, and no gradient") {
  const Tensor a = tensor({1.f, 2.f, 3.f, NAN}), b = tensor({2.f, 2.f, 2.f, 2.f});
  require_grad(a);
  CHECK((a > b).dtype() == Dtype::u8);
  CHECK(bits(a > b) == Bits{0, 0, 1, 0});
  CHECK(bits(a >= b) == Bits{0, 1, 1, 0});
  CHECK(bits(a < b) == Bits{1, 0, 0, 0});
  CHECK(bits(a <= b) == Bits{1, 1, 0, 0});
  CHECK(bits(a == b) == Bits{0, 1, 0, 0});
  CHECK(bits(a != b) == Bits{1, 0, 1, 1});
  CHECK(bits(a > 2.0) == bits(a > b));
  CHECK(bits(a >= 2.0) == bits(a >= b));
  CHECK(bits(a < 2.0) == bits(a < b));
  CHECK(bits(a <= 2.0) == bits(a <= b));
  CHECK(bits(a == 2.0) == bits(a == b));
  CHECK(bits(a != 2.0) == bits(a != b));
  CHECK(bits(2 < a) == bits(a > b));
  CHECK(bits(2.0 == a) == bits(a == 2));
  CHECK(!requires_grad(a > b));
  CHECK(bits(tensor({{1.f}, {3.f}}) > tensor({0.f, 2.f})) == Bits{1, 0, 1, 1});  // broadcasts
  CHECK(bits(arange(3, Dtype::i64) == 1) == Bits{0, 1, 0});
  CHECK(bits(Tensor::full({1}, 1.5, Dtype::bf16) > 1.25) == Bits{1});
  CHECK(bits((a > b) == 1) == Bits{0, 0, 1, 0});
  CHECK_THROWS_AS(static_cast<void>(a > arange(4, Dtype::f64)), DtypeError);
  CHECK_THROWS_AS(static_cast<void>(a > zeros({3})), ShapeError);
  CHECK_THROWS_AS(static_cast<void>(Tensor() > 1.0), ValueError);
}

TEST_CASE("x[i] is a view of a row") {
  const Tensor x = arange(6).reshape({2, 3});
  CHECK(x[0].shape() == Shape{3});
  CHECK(floats(x[1]) == Floats{3, 4, 5});
  CHECK(floats(x[-1]) == Floats{3, 4, 5});
  CHECK(x[1][2].item() == 5);
  CHECK(x[0].buffer() == x.buffer());
  CHECK(contains(error_of<ShapeError>([&] { x[2]; }), "entry 2 of axis 0"));
  CHECK_THROWS_AS(x[-3], ShapeError);
  CHECK_THROWS_AS(Tensor()[0], ValueError);
  CHECK_THROWS_AS(Tensor().reshape({1}), ValueError);
  CHECK(contains(error_of<ShapeError>([&] { x[0][0][0]; }), "scalar"));
}

TEST_CASE("argmax: the first largest, along an axis or in all") {
  const Tensor x = tensor({{1.f, 5.f, 5.f}, {7.f, 0.f, 7.f}});
  using Places = std::vector<std::int64_t>;
  CHECK(argmax(x, -1).to_vector<std::int64_t>() == Places{1, 0});
  CHECK(argmax(x, 0).to_vector<std::int64_t>() == Places{1, 0, 1});
  CHECK(argmax(x, -1, true).shape() == Shape{2, 1});
  CHECK(argmax(x).item_int() == 3);
  CHECK(argmax(transpose(x, 0, 1)).item_int() == 1);
  CHECK(argmax(cast(x, Dtype::bf16), 1).to_vector<std::int64_t>() == Places{1, 0});
  CHECK(argmax(tensor({1.f, NAN, 3.f})).item_int() == 1);
  CHECK_THROWS_AS(argmax(zeros({0})), ShapeError);
  CHECK_THROWS_AS(argmax(x, 2), ShapeError);
}

TEST_CASE("maximum and minimum and clamp keep a NaN and refuse limits in the wrong order") {
  const double nan = std::nan("");
  const Tensor a = Tensor::from({nan, 1.0, 2.0, nan}, {4}), b = Tensor::from({1.0, nan, 3.0, nan}, {4});
  for (const Tensor& y : {maximum(a, b), minimum(a, b)})
    for (const std::int64_t i : {0, 1, 3}) CHECK(std::isnan(y[i].item()));
  CHECK(maximum(a, b)[2].item() == 3);
  CHECK(minimum(a, b)[2].item() == 2);
  CHECK(std::isnan(clamp(a, 0, 1)[0].item()));
  CHECK(clamp(a, 0, 1)[2].item() == 1);
  CHECK_THROWS_AS(clamp(a, 1, 0), ValueError);
  CHECK_THROWS_AS(clamp(a, nan, 0), ValueError);
}

TEST_CASE("the gradient of clamp passes at the limits and that of maximum goes to the second of equals") {
  const Tensor x = Tensor::from({-1.0, 0.0, 1.0, 2.0}, {4}), y = Tensor::from({-1.0, 0.0, 1.0, 2.0}, {4});
  require_grad(x);
  require_grad(y);
  backward(sum(clamp(x, 0, 1)));
  CHECK(grad(x).to_vector<double>() == std::vector<double>{0, 1, 1, 0});
  zero_grad(x);
  backward(sum(maximum(x, y)));
  CHECK(grad(x).to_vector<double>() == std::vector<double>{0, 0, 0, 0});
  CHECK(grad(y).to_vector<double>() == std::vector<double>{1, 1, 1, 1});
}
