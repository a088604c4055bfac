// linear_cross_entropy beside what it stands for: linear, then cross_entropy.
#include "ops/loss/linear_cross_entropy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/loss/cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/support/spec_check.h"

namespace {

using namespace eddy;
using namespace eddy::spec_check;

constexpr std::int64_t kRows = 11, kWidth = 6, kClasses = 9;

struct Inputs {
  Tensor x = sample_normal({kRows, kWidth}, "x"), weight = sample_normal({kClasses, kWidth}, "weight"),
         bias = sample_normal({kClasses}, "bias");
  Tensor targets = Tensor::from(std::vector<std::int64_t>{3, -1, 0, 8, 7, -1, 2, 2, 5, -1, 1}, {kRows});
};

// The loss times a number, and the gradients; chunk -1: by logits.
Tensors run(const Inputs& in, std::int64_t chunk, double cotangent) {
  Tensors leaves;
  for (const Tensor& input : {in.x, in.weight, in.bias}) {
    leaves.push_back(raw::alias(input));
    require_grad(leaves.back());
  }
  const Tensor loss = chunk < 0
                          ? cross_entropy(linear(leaves[0], leaves[1], leaves[2]), in.targets)
                          : linear_cross_entropy(leaves[0], leaves[1], leaves[2], in.targets, -1, chunk);
  backward(loss, Tensor::full({}, cotangent, Dtype::f64));
  return {detach(loss), grad(leaves[0]), grad(leaves[1]), grad(leaves[2])};
}

}  // namespace

TEST_CASE("linear_cross_entropy equals linear and cross_entropy for any chunk and cotangent") {
  const Inputs in;
  for (const double cotangent : {1.0, -0.37, 0.0, 1e6}) {
    const Tensors want = run(in, -1, cotangent);
    for (const std::int64_t chunk : {0, 1, 2, 4, 11, 100}) {
      const Tensors got = run(in, chunk, cotangent);
      for (std::size_t i = 0; i < want.size(); ++i) {
        expect_none(
            difference(fmt::format("part {}, chunk {}", i, chunk), got[i], want[i], 64, epsilon(Dtype::f64)));
      }
    }
  }
}

TEST_CASE("linear_cross_entropy passes a NaN cotangent on to every gradient") {
  for (const Tensor& part : run({}, 2, std::numeric_limits<double>::quiet_NaN()))
    if (part.rank() > 0)
      for (const double value : part.to_vector<double>()) CHECK(std::isnan(value));
}

TEST_CASE("linear_cross_entropy gives gradients to what is tracked alone and adds to what is there") {
  const Inputs in;
  const Tensors want = run(in, -1, 1);
  const Tensor weight = raw::alias(in.weight);
  require_grad(weight);
  const auto loss = [&] { return linear_cross_entropy(in.x, weight, in.bias, in.targets, -1, 3); };
  backward(loss() + loss());
  expect_none(difference("twice", grad(weight), raw::copy(want[2] * 2.0), 64, epsilon(Dtype::f64)));
  CHECK_FALSE(requires_grad(linear_cross_entropy(in.x, in.weight, in.bias, in.targets)));
  const NoGrad no_grad;
  CHECK_FALSE(requires_grad(loss()));
}

TEST_CASE("linear_cross_entropy writes gradients into the place they have and adds to what is there") {
  const Inputs in;
  const Tensors want = run(in, -1, 1);
  const Tensor storage = Tensor::full(in.weight.shape(), 7, Dtype::f64);  // stale numbers, to be overwritten
  const Tensor weight = raw::alias(in.weight);
  require_grad(weight);
  set_grad_storage(weight, storage);
  for (const double times : {1.0, 2.0}) {
    backward(linear_cross_entropy(in.x, weight, in.bias, in.targets, -1, 3));
    expect_none(difference("storage", storage, raw::copy(want[2] * times), 64, epsilon(Dtype::f64)));
  }
}

TEST_CASE("linear_cross_entropy never holds logits of all rows") {
  const std::int64_t rows = 256, width = 32, classes = 2048, chunk = 16;
  const Tensor x = Tensor::full({rows, width}, 0.5), weight = Tensor::full({classes, width}, 0.25);
  const Tensor targets = sample_indices({rows}, "targets", classes);
  require_grad(x);
  require_grad(weight);
  Allocator& memory = allocator(kCpu);
  const auto peak = [&](auto&& loss) {
    memory.reset_peak();
    const std::int64_t before = memory.stats().live_bytes;
    backward(loss());
    zero_grad(x);
    zero_grad(weight);
    return memory.stats().peak_bytes - before;
  };
  const std::int64_t logits = rows * classes * 4;
  CHECK(peak([&] { return cross_entropy(linear(x, weight), targets); }) >= 2 * logits);
  // A chunk, the two gradients, a factor that is packed, and small change such as OpenBLAS's copy of a strided factor.
  CHECK(peak([&] { return linear_cross_entropy(x, weight, {}, targets, -1, chunk); }) <=
        chunk * classes * 4 + 2 * (rows + classes) * width * 4 + classes * width * 4 + (1 << 16));
}

TEST_CASE("linear_cross_entropy_rows gives each row its loss in the shape of the targets") {
  const Inputs in;
  const Tensor x = raw::reshape(raw::narrow(in.x, 0, 0, 10), {2, 5, kWidth}),
               targets = raw::reshape(raw::narrow(in.targets, 0, 0, 10), {2, 5});
  const Tensor got = linear_cross_entropy_rows(x, in.weight, in.bias, targets, -1, 3);
  CHECK(got.shape() == Shape{2, 5});
  expect_none(difference("rows", got, cross_entropy_rows(linear(x, in.weight, in.bias), targets), 64,
                         epsilon(Dtype::f64)));
}

TEST_CASE("linear_cross_entropy of bf16 keeps logits and loss in f32 and gradients of f32 parameters exact") {
  const Tensor x = Tensor::full({3, 2}, 1, Dtype::bf16);
  const Tensor weight = Tensor::full({5, 2}, 0.5);
  require_grad(x);
  require_grad(weight);
  const Tensor loss = linear_cross_entropy(x, weight, {}, Tensor::full({3}, 2, Dtype::i64), -1, 2);
  CHECK(loss.dtype() == Dtype::f32);
  CHECK(std::abs(loss.item() - std::log(5.0)) <= 1e-6);
  backward(loss);
  CHECK(grad(x).dtype() == Dtype::bf16);
  CHECK(grad(weight).dtype() == Dtype::f32);
  CHECK(std::abs(grad(weight).to_vector<float>()[0] - 0.2f) <= 1e-7f);
}

TEST_CASE("linear_cross_entropy names what does not fit") {
  const Inputs in;
  const auto call = [&](const Tensor& weight, const Tensor& bias, const Tensor& targets, std::int64_t chunk) {
    return linear_cross_entropy(in.x, weight, bias, targets, -1, chunk);
  };
  CHECK_THROWS_WITH_AS(call(sample_normal({9, 5}, "w"), {}, in.targets, 0),
                       doctest::Contains("linear_cross_entropy: x [11, 6] and weight [9, 5]"), ShapeError);
  CHECK_THROWS_WITH_AS(call(in.weight, sample_normal({8}, "b"), in.targets, 0),
                       doctest::Contains("bias [8] for weight [9, 6]"), ShapeError);
  CHECK_THROWS_WITH_AS(call(in.weight, {}, Tensor::zeros({10}, Dtype::i64), 0),
                       doctest::Contains("logits [11, 9] and targets [10]"), ShapeError);
  CHECK_THROWS_WITH_AS(call(in.weight, {}, Tensor::full({kRows}, 9, Dtype::i64), 0),
                       doctest::Contains("the target of row 0 is 9 with 9 classes"), ValueError);
  CHECK_THROWS_WITH_AS(call(in.weight, {}, in.targets, -1), doctest::Contains("a chunk of -1 rows"),
                       ValueError);
  CHECK_THROWS_AS(call(raw::cast(in.weight, Dtype::f32), {}, in.targets, 0), DtypeError);
  CHECK_THROWS_AS(call(in.weight, {}, Tensor::zeros({kRows}), 0), DtypeError);
  CHECK_THROWS_AS(call(in.weight, {}, {}, 0), ValueError);
}
