// Scans: what they refuse, closed forms, and blocks of time.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/tape.h"
#include "ops/recurrence/scan.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"
#include "tensor/create.h"

using namespace eddy;

TEST_CASE("scan names shapes that do not fit") {
  const Tensor x = zeros({2, 5, 3});
  CHECK_THROWS_WITH_AS(scan(x, x, 3), doctest::Contains("scan: there is no axis 3 in [2, 5, 3]"), ShapeError);
  CHECK_THROWS_WITH_AS(scan(zeros({2, 5, 1}), x, 1), doctest::Contains("scan: a [2, 5, 1] and b [2, 5, 3]"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(scan(x, x, 1, zeros({2, 5})), doctest::Contains("scan: initial [2, 5]"), ShapeError);
  CHECK_THROWS_AS(scan(zeros({2, 5, 3}, Dtype::f64), x, 1), DtypeError);
  CHECK_THROWS_AS(cumsum(zeros({}), 0), ShapeError);
}

TEST_CASE("a constant factor gives a geometric sum, along any axis and over many blocks") {
  for (const std::int64_t time : {1, 2, 999, 1000, 1501}) {
    CAPTURE(time);
    for (const int axis : {0, 1}) {
      const Shape shape = axis == 0 ? Shape{time, 2} : Shape{2, time};
      const Tensor h =
          scan(full(shape, 0.99, Dtype::f64), ones(shape, Dtype::f64), axis, full({2}, 3, Dtype::f64));
      const double n = static_cast<double>(time), power = std::pow(0.99, n);
      CHECK(h.to_vector<double>().back() == doctest::Approx(3 * power + (1 - power) / 0.01).epsilon(1e-12));
    }
    CHECK(cumsum(ones({time}), 0).to_vector<float>().back() == static_cast<float>(time));
  }
}

TEST_CASE("where nothing is carried, the product of large factors does not count") {
  const Tensor h = scan(full({3000}, 1e10), zeros({3000}), 0);
  CHECK(max(h).item() == 0);
  CHECK(min(h).item() == 0);
}

TEST_CASE("a scan gives gradients to the operands that want one") {
  const Tensor a = full({4}, 0.5), b = ones({4}), initial = ones({});
  require_grad(initial);
  backward(sum(scan(a, b, 0, initial)));
  CHECK(grad(initial).item() == 0.5 + 0.25 + 0.125 + 0.0625);
  require_grad(a);
  backward(sum(scan(a, b, 0)));
  // h = 1, 1.5, 1.75, 1.875 and g = 1.875, 1.75, 1.5, 1; da_t = g_t h_{t-1}.
  CHECK(grad(a).to_vector<float>() == std::vector<float>{0, 1.75F, 2.25F, 1.75F});
}
