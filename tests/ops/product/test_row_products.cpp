// The gradients of weights that many products of few rows share, as those of a recurrence's steps do: put off
// and multiplied at once. What must hold is the sum; how many products it took shows that it was at once.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/gemm.h"
#include "ops/product/linear.h"
#include "ops/product/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"
#include "tests/support/spec_check.h"

namespace {

using namespace eddy;
using namespace eddy::detail;
using spec_check::normal;

constexpr std::int64_t kSteps = 20, kRows = 3, kIn = 48, kOut = 64;

int products = 0;
void (*uncounted)(const GemmArgs&) = nullptr;
void counted(const GemmArgs& args) {
  ++products;
  uncounted(args);
}

// Counts the products of its lifetime.
class CountProducts {
 public:
  CountProducts() {
    auto& function = gemm_slot.function[static_cast<int>(DeviceType::cpu)];
    uncounted = function;
    function = counted;
    products = 0;
  }
  ~CountProducts() { gemm_slot.function[static_cast<int>(DeviceType::cpu)] = uncounted; }
};

// A chain h = tanh(h W^T + x_t).
Tensor chain(const Tensor& weight, const Tensor& x) {
  Tensor h = Tensor::zeros({kRows, kOut}, x.dtype());
  for (std::int64_t t = 0; t < x.dim(0); ++t)
    h = tanh(linear(narrow(h, 1, 0, kIn), weight) + select(x, 0, t));
  return h;
}

// The largest difference of two gradients beside the largest of the second.
double error(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = raw::cast(raw::contiguous(a), Dtype::f64).to_vector<double>(),
                            right = raw::cast(raw::contiguous(b), Dtype::f64).to_vector<double>();
  REQUIRE(left.size() == right.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    worst = std::max(worst, std::abs(left[i] - right[i]));
    largest = std::max(largest, std::abs(right[i]));
  }
  return worst / largest;
}

// The chain's gradient with every product made where it arises, as anomaly mode does.
Tensor expected(const Tensor& weight, const Tensor& x, const Tensor& dy) {
  const Tensor leaf = require_grad(raw::copy(weight));
  const Tensor h = chain(leaf, x);
  const AnomalyMode one_by_one;
  backward(h, dy);
  return grad(leaf);
}

}  // namespace

TEST_CASE("row products: a weight's gradient over the steps of a chain is few products") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    CAPTURE(dtype_name(dtype));
    const Tensor weight = normal({kOut, kIn}, "weight", dtype) * 0.1,
                 x = normal({kSteps, kRows, kOut}, "x", dtype), dy = normal({kRows, kOut}, "dy", dtype);
    const Tensor leaf = require_grad(raw::copy(weight));
    const Tensor h = chain(leaf, x);
    {
      const CountProducts counting;
      backward(h, dy);
    }
    // One for dx of every step but the first, whose h is a constant; 20 steps of 3 rows are enough rows once,
    // at 55.
    CHECK(products == kSteps - 1 + 2);
    CHECK(error(grad(leaf), expected(weight, x, dy)) < (dtype == Dtype::f32 ? 1e-5 : 1e-13));
  }
}

TEST_CASE("row products: rows as many as a gradient is large are multiplied where they arise") {
  const Tensor weight = require_grad(normal({kOut, kIn}, "weight"));
  const Tensor x = normal({2, 600, kIn}, "x");
  const Tensor y = linear(select(x, 0, 0), weight) + linear(select(x, 0, 1), weight);
  const CountProducts counting;
  backward(y, normal({600, kOut}, "dy"));
  CHECK(products == 2);
}

TEST_CASE("row products: a gradient is summed with what is there and with what comes by other ways") {
  const Tensor weight = normal({kOut, kIn}, "weight") * 0.1, x = normal({kSteps, kRows, kOut}, "x"),
               dy = normal({kRows, kOut}, "dy");
  const Tensor once = expected(weight, x, dy);
  const Tensor leaf = require_grad(raw::copy(weight));
  for (int pass = 0; pass < 2; ++pass) backward(sum(chain(leaf, x) * dy) + sum(leaf * leaf));
  CHECK(error(grad(leaf), once * 2.0 + weight * 4.0) < 1e-13);

  const Tensor stored = require_grad(raw::copy(weight)), storage = Tensor::full({kOut, kIn}, 7.0, Dtype::f64);
  set_grad_storage(stored, storage);  // of no meaning before the first contribution
  backward(chain(stored, x), dy);
  CHECK(error(storage, once) < 1e-13);
}

TEST_CASE("row products: parts of a weight and weights made of others get theirs before they pass them on") {
  const Tensor both = normal({2 * kOut, kIn}, "weight") * 0.1, x = normal({kSteps, kRows, kOut}, "x"),
               dy = normal({kRows, kOut}, "dy");
  const Tensor once = expected(raw::contiguous(raw::narrow(both, 0, kOut, kOut)), x, dy);
  const Tensor leaf = require_grad(raw::copy(both));
  backward(chain(narrow(leaf, 0, kOut, kOut) * 1.0, x), dy);
  CHECK(error(raw::narrow(grad(leaf), 0, kOut, kOut), once) < 1e-13);
  CHECK(error(raw::narrow(grad(leaf), 0, 0, kOut) + once, once) == 0);
}

TEST_CASE("row products: rows of different kinds and a checkpoint give the same sum") {
  const Tensor weight = normal({kOut, kIn}, "weight", Dtype::f32) * 0.1,
               x = normal({kRows, kIn}, "x", Dtype::f32), dy = normal({kRows, kOut}, "dy", Dtype::f32);
  const Tensor leaf = require_grad(raw::copy(weight));
  const Tensor rounded = raw::cast(x, Dtype::bf16), dy_rounded = raw::cast(dy, Dtype::bf16);
  const std::vector<Tensor> ys{linear(x, leaf), linear(rounded, leaf), linear(x, leaf),
                               linear(rounded, leaf)};
  backward(ys, {dy, dy_rounded, dy, dy_rounded});
  const auto product = [](const Tensor& d, const Tensor& rows) {
    return matmul(raw::transpose(raw::cast(d, Dtype::f64), 0, 1), raw::cast(rows, Dtype::f64));
  };
  CHECK(error(grad(leaf), (product(dy, x) + product(dy_rounded, rounded)) * 2.0) < 1e-6);

  const Tensor steps = normal({kSteps, kRows, kOut}, "steps", Dtype::f32);
  const Tensor kept = require_grad(raw::copy(weight));
  backward(checkpoint([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{chain(in[0], in[1])}; },
                      {kept, steps})[0],
           dy);
  const Tensor plain = require_grad(raw::copy(weight));
  backward(chain(plain, steps), dy);
  CHECK(error(grad(kept), expected(weight, steps, dy)) < 1e-5);
  CHECK(error(grad(kept), grad(plain)) == 0);
}

TEST_CASE("row products: a backward pass that fails leaves nothing behind for the next one") {
  const Tensor weight = normal({kOut, kIn}, "weight") * 0.1, x = normal({4, kRows, kOut}, "x"),
               dy = normal({kRows, kOut}, "dy");
  const Tensor leaf = require_grad(raw::copy(weight)), start = require_grad(normal({kRows, kIn}, "start"));
  const Tensor broken =
      record("broken", {start}, raw::copy(start), {}, [](VjpContext&) { fail<ValueError>("broken"); });
  CHECK_THROWS_AS(backward(linear(broken, leaf), dy), ValueError);
  CHECK_FALSE(grad(leaf).defined());
  backward(chain(leaf, x), dy);
  CHECK(error(grad(leaf), expected(weight, x, dy)) < 1e-13);
}
