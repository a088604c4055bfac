// Parameters as products see them: their precision, and what is kept of them until the next write.
#include "ops/core/parameter_cache.h"

#include <doctest/doctest.h>

#include <vector>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/product/linear.h"
#include "ops/product/matmul.h"
#include "tests/support/isa_levels.h"
#include "tests/support/spec_check.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;
using spec_check::normal;

namespace {

std::vector<float> floats(const Tensor& x) {
  return raw::contiguous(raw::cast(x, Dtype::f32)).to_vector<float>();
}

// y = x W^T, and its gradients, for a weight of this precision.
struct Layer {
  Tensor x, weight, y;

  explicit Layer(MatmulPrecision precision)
      : x(normal({5, 33}, "x", Dtype::f32)), weight(normal({17, 33}, "weight", Dtype::f32)) {
    mark_parameters(weight, precision);
    require_grad(x);
    require_grad(weight);
  }
  void run() {
    for (const Tensor& leaf : {x, weight}) zero_grad(leaf);
    y = linear(x, weight);
    backward(y, normal(y.shape(), "dy", Dtype::f32));
  }
};

bool equal_layers(const Layer& a, const Layer& b) {
  return equal_bits(a.y, b.y) && equal_bits(grad(a.x), grad(b.x)) &&
         equal_bits(grad(a.weight), grad(b.weight));
}

}  // namespace

TEST_CASE("parameters: the precision is that of the buffer, in every view") {
  const Tensor arena = Tensor::zeros({12});
  CHECK(matmul_precision(arena) == MatmulPrecision::f32);
  CHECK(matmul_precision(Tensor()) == MatmulPrecision::f32);
  mark_parameters(arena, MatmulPrecision::tf32);
  const Tensor view = raw::transpose(raw::reshape(raw::narrow(arena, 0, 2, 6), {2, 3}), 0, 1);
  CHECK(matmul_precision(view) == MatmulPrecision::tf32);
  CHECK(matmul_precision(raw::copy(arena)) == MatmulPrecision::f32);
  CHECK(coarsest(MatmulPrecision::f32, raw::copy(arena), view) == MatmulPrecision::tf32);
  CHECK(coarsest(MatmulPrecision::bf16, view) == MatmulPrecision::bf16);
}

TEST_CASE("parameters: layers of two precisions by turns have the bits of each alone") {
  Layer exact(MatmulPrecision::f32), rounded(MatmulPrecision::bf16);
  exact.run();
  rounded.run();
  Layer exact_again(MatmulPrecision::f32), rounded_again(MatmulPrecision::bf16);
  for (int turn = 0; turn < 2; ++turn) {
    rounded_again.run();
    exact_again.run();
  }
  CHECK(equal_layers(exact_again, exact));
  CHECK(equal_layers(rounded_again, rounded));
  if (!has_rounded_products()) return;
  CHECK_FALSE(equal_bits(rounded.y, exact.y));
  CHECK_FALSE(equal_bits(grad(rounded.x), grad(exact.x)));
  CHECK_FALSE(equal_bits(grad(rounded.weight), grad(exact.weight)));
}

TEST_CASE("parameters: a product of activations takes the precision that is given") {
  if (!has_rounded_products()) return;
  const auto product = [](MatmulPrecision precision) {
    const Tensor a = require_grad(normal({2, 5, 33}, "a", Dtype::f32)),
                 b = require_grad(normal({2, 33, 17}, "b", Dtype::f32));
    const Tensor y = matmul(a, b, precision);
    backward(y, normal(y.shape(), "dy", Dtype::f32));
    return std::vector<Tensor>{y, grad(a), grad(b)};
  };
  const std::vector<Tensor> exact = product(MatmulPrecision::f32), rounded = product(MatmulPrecision::bf16);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK_FALSE(equal_bits(rounded[i], exact[i]));
    CHECK(largest_difference(rounded[i], exact[i]) <=
          33 * 9 * 0x1p-8);  // factors of up to 3, each off by 2^-9
  }
}

TEST_CASE("parameters: packed panels follow a write") {
  if (!has_rounded_products()) return;
  Layer layer(MatmulPrecision::bf16);
  layer.run();
  const Tensor before = raw::copy(detach(layer.y));
  raw::fill(layer.weight, 0.5);
  wrote_in_place(layer.weight, "a test");
  layer.run();
  const Tensor sums = matmul(detach(layer.x), Tensor::full({33, 17}, 0.5), MatmulPrecision::bf16);
  CHECK(equal_bits(detach(layer.y), sums));
  CHECK_FALSE(equal_bits(detach(layer.y), before));
}

TEST_CASE("parameters: a buffer that keeps a rounded copy rounds once until it is written") {
  const Tensor arena = Tensor::from(std::vector<float>{1.001f, -2.003f, 3.005f, 4.007f, 5.009f, 6.011f}, {6});
  CHECK_FALSE(raw::to_bf16(arena).buffer() == raw::to_bf16(arena).buffer());
  mark_parameters(arena, MatmulPrecision::f32, true);
  const ParameterCache* const cache = ParameterCache::of(arena);
  CHECK(cache->current_bf16_copy(arena) == nullptr);
  const Tensor grid = raw::transpose(raw::reshape(raw::narrow(arena, 0, 2, 4), {2, 2}), 0, 1);
  const Tensor rounded = raw::to_bf16(grid);
  CHECK(rounded.buffer() == raw::to_bf16(arena).buffer());
  CHECK(cache->current_bf16_copy(arena) == rounded.buffer().get());
  CHECK(floats(rounded) == floats(raw::cast(grid, Dtype::bf16)));
  CHECK(rounded.strides()[0] == 1);
  const std::uint32_t version = rounded.buffer()->version();
  raw::fill(arena, 7.1);
  CHECK(floats(raw::to_bf16(grid))[0] == 3.0f);
  wrote_in_place(arena, "a test");
  CHECK(cache->current_bf16_copy(arena) == nullptr);
  CHECK(floats(raw::to_bf16(grid))[0] == 7.09375f);
  CHECK(rounded.buffer()->version() == version + 1);
  CHECK(raw::to_bf16(rounded).same(rounded));
}
