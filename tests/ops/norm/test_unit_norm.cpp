// Errors and exact properties of unit vectors.
#include <doctest/doctest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/unit_norm.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/error.h"
#include "tests/support/isa_levels.h"

using namespace eddy;
using namespace eddy::test;

TEST_CASE("unit_norm refuses scalars, integers and a bad eps") {
  CHECK_THROWS_WITH_AS(unit_norm(Tensor::zeros({})),
                       "unit_norm: a scalar has no last axis (give it at least one axis)", ShapeError);
  CHECK_THROWS_AS(unit_norm(Tensor::zeros({2, 3}, Dtype::i64)), DtypeError);
  CHECK_THROWS_AS(unit_norm(Tensor::zeros({2, 3}), -1e-6), ValueError);
  CHECK_THROWS_AS(unit_norm(Tensor::zeros({2, 3}), std::nan("")), ValueError);
}

TEST_CASE("rows of unit_norm have length one and a zero row stays zero with a finite gradient") {
  const Tensor x = raw::cast(sample_normal({5, 48}, "x"), Dtype::f64);
  raw::fill(raw::select(x, 0, 2), 0);
  require_grad(x);
  const Tensor y = unit_norm(x, 1e-6);
  const std::vector<double> values = y.to_vector<double>();
  for (std::size_t row = 0; row < 5; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < 48; ++i) squares += values[row * 48 + i] * values[row * 48 + i];
    CHECK(std::abs(squares - (row == 2 ? 0.0 : 1.0)) <= 1e-6);
  }
  backward(y, Tensor::full({5, 48}, 1.0, Dtype::f64));
  const std::vector<double> dx = grad(x).to_vector<double>();
  for (std::size_t i = 0; i < 48; ++i) CHECK(std::abs(dx[2 * 48 + i] - 1000) <= 1e-9);  // eps^(-1/2)
}

TEST_CASE("heads of unit_norm_heads that stay as they are keep their bits, and so do their gradients") {
  const Tensor x = raw::cast(sample_normal({5, 3, 7}, "x"), Dtype::f32);
  require_grad(x);
  const Tensor dy = raw::cast(sample_normal({5, 3, 7}, "dy"), Dtype::f32);
  const Tensor y = unit_norm_heads(x, 1e-6, {1, 1});
  backward(y, dy);
  const auto head = [](const Tensor& t, std::int64_t index) {
    return raw::copy(raw::select(t, 1, index)).to_vector<float>();
  };
  CHECK(head(y, 1) == head(x, 1));
  CHECK(head(grad(x), 1) == head(dy, 1));
  const Tensor all = unit_norm(raw::alias(x), 1e-6);
  for (const std::int64_t other : {0, 2}) CHECK(head(y, other) == head(all, other));
}

TEST_CASE("unit_norm_heads refuses heads that are not there") {
  CHECK_THROWS_AS(unit_norm_heads(Tensor::zeros({3}), 1e-6, {}), ShapeError);
  CHECK_THROWS_WITH_AS(unit_norm_heads(Tensor::zeros({2, 4, 3}), 1e-6, {3, 2}),
                       doctest::Contains("unit_norm_heads: 2 heads from 3 of 4"), ShapeError);
  CHECK_THROWS_AS(unit_norm_heads(Tensor::zeros({2, 4, 3}), 1e-6, {-1, 1}), ShapeError);
}

TEST_CASE("norms of rows whose squares overflow are those of the same rows made smaller") {
  using Norm = Tensor (*)(const Tensor&);
  const Norm norms[] = {[](const Tensor& x) { return unit_norm(x, 0); },
                        [](const Tensor& x) { return rms_norm(x, {}, 0); },
                        [](const Tensor& x) { return layer_norm(x, {}, {}, 0); }};
  on_every_isa_level([&] {
    for (const auto& [dtype, huge] :
         {std::pair{Dtype::f32, 0x1p66}, {Dtype::f32, 0x1p120}, {Dtype::f64, 0x1p900}})
      for (const std::int64_t width : {5, 32, 48, 64})
        for (const Norm norm : norms) {
          const Tensor x = raw::cast(sample_normal({19, width}, "x"), dtype), large = x * huge;
          const Tensor dy = raw::cast(sample_normal({19, width}, "dy"), dtype);
          for (const Tensor& input : {x, large}) {
            require_grad(input);
            backward(norm(input), dy);
          }
          const std::vector<double> want = raw::cast(norm(x), Dtype::f64).to_vector<double>(),
                                    got = raw::cast(norm(large), Dtype::f64).to_vector<double>(),
                                    dx = raw::cast(grad(x), Dtype::f64).to_vector<double>(),
                                    dlarge = raw::cast(grad(large) * huge, Dtype::f64).to_vector<double>();
          for (std::size_t i = 0; i < want.size(); ++i) {
            CHECK(std::abs(got[i] - want[i]) <= 1e-5);
            CHECK(std::abs(dlarge[i] - dx[i]) <= 1e-4);
          }
        }
  });
}
