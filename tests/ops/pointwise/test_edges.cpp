// Gradients where numbers are huge, tiny or infinite.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/reduce/reduce.h"
#include "tensor/create.h"
#include "tests/support/isa_levels.h"

using namespace eddy;
using namespace eddy::test;

namespace {

// The gradient of the sum of function(x) at one place, repeated so that loops have vectors and a tail.
double slope(const std::function<Tensor(const Tensor&)>& function, double place, Dtype dtype) {
  const Tensor x = full({37}, place, dtype);
  require_grad(x);
  backward(sum(function(x)));
  return grad(x)[36].item();
}

}  // namespace

TEST_CASE("the gradient of a quotient goes through no square") {
  on_every_isa_level([] {
    for (const double place : {1e20, -1e20, 1e-20, 3e37}) {
      CHECK(slope([&](const Tensor& b) { return full({37}, place) / b; }, place, Dtype::f32) ==
            doctest::Approx(-1 / place).epsilon(1e-6));
      CHECK(slope([&](const Tensor& b) { return place / b; }, place, Dtype::f32) ==
            doctest::Approx(-1 / place).epsilon(1e-6));
    }
    CHECK(slope([](const Tensor& b) { return 1e200 / b; }, 1e200, Dtype::f64) ==
          doctest::Approx(-1e-200).epsilon(1e-12));
  });
}

TEST_CASE("gradients of activations are finite at huge numbers") {
  using Activation = Tensor (*)(const Tensor&);
  const Activation rising[] = {relu, silu, gelu, gelu_tanh, softplus};
  const Activation flat[] = {tanh, sigmoid};
  on_every_isa_level([&] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64})
      for (const double huge : {50.0, 1e4, 1e13, 1e20, 3e38}) {
        for (const Activation activation : rising) {
          CHECK(slope(activation, huge, dtype) == doctest::Approx(1));
          CHECK(slope(activation, -huge, dtype) == doctest::Approx(0));
        }
        for (const Activation activation : flat) {
          CHECK(slope(activation, huge, dtype) == doctest::Approx(0));
          CHECK(slope(activation, -huge, dtype) == doctest::Approx(0));
        }
      }
  });
}

TEST_CASE("what where does not choose has no gradient even where the derivative is infinite or NaN") {
  struct Masked {
    const char* name;
    Tensor (*function)(const Tensor&);
    double place;
  };
  const Masked cases[] = {
      {"sqrt", [](const Tensor& x) { return sqrt(x); }, 0},
      {"sqrt of less", [](const Tensor& x) { return sqrt(x); }, -1},
      {"rsqrt", [](const Tensor& x) { return rsqrt(x); }, 0},
      {"log", [](const Tensor& x) { return log(x); }, 0},
      {"exp", [](const Tensor& x) { return exp(x * 1000.0); }, 2},
      {"expm1", [](const Tensor& x) { return expm1(x * 1000.0); }, 2},
      {"log1p", [](const Tensor& x) { return log1p(x); }, -1},
      {"sine of infinity", [](const Tensor& x) { return sin(x / 0.0); }, 1},
      {"quotient by x", [](const Tensor& x) { return 1.0 / x; }, 0},
      {"x by itself", [](const Tensor& x) { return x / x; }, 0},
      {"power", [](const Tensor& x) { return pow(x, 0.5); }, 0},
      {"power of less", [](const Tensor& x) { return pow(x, -1.5); }, 0},
      {"exponent", [](const Tensor& x) { return pow(1e30 * (1 + 0 * x), 10.0 * x); }, 2},
      {"entropy", [](const Tensor& x) { return x * log(x); }, 0},
      {"product of infinities", [](const Tensor& x) { return log(x) / x; }, 0},
      {"silu", [](const Tensor& x) { return silu(x / 0.0); }, 1},
      {"gated", [](const Tensor& x) { return swiglu(x, 1.0 / x); }, 0},
  };
  on_every_isa_level([&] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
      for (const Masked& c : cases) {
        const Tensor none = full({37}, 0, Dtype::u8);
        CHECK_MESSAGE(
            slope([&](const Tensor& x) { return where(none, c.function(x), 3 * x); }, c.place, dtype) == 3,
            c.name);
      }
  });
}
