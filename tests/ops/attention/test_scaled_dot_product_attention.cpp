// PyTorch's form of attention: its layout, its defaults, and its errors. Its values and gradients are compared in
// tests/ops/test_op_specs.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/core/op_spec.h"
#include "ops/views/views.h"
#include "tests/support/errors.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::spec_check;

namespace {

// Rows of [batch, time, heads, size] and the same numbers, in the same memory, as [batch, heads, time, size].
Tensor swapped(const Tensor& x) {
  return transpose(x, 1, 2);
}

Tensor f32(const Shape& shape, const char* stream) {
  return raw::cast(sample_normal(shape, stream), Dtype::f32);
}

}  // namespace

TEST_CASE("scaled_dot_product_attention gives the bits of attention_bthd in the other layout") {
  const Tensor q = f32({2, 9, 4, 8}, "q"), k = f32({2, 9, 2, 8}, "k"), v = f32({2, 9, 2, 8}, "v");
  AttentionOptions options;
  options.causal = true;
  options.dropout = 0.2;
  options.dropout_key = random_key(3, "sdpa", 1);
  options.scale = 0.3;
  const Tensor y = scaled_dot_product_attention(swapped(q), swapped(k), swapped(v),
                                                {.dropout_p = 0.2,
                                                 .is_causal = true,
                                                 .scale = 0.3,
                                                 .enable_gqa = true,
                                                 .dropout_key = options.dropout_key});
  CHECK(y.shape() == Shape{2, 4, 9, 8});
  expect_none(bit_difference("y", swapped(y), attention_bthd(q, k, v, options)));
}

TEST_CASE("scaled_dot_product_attention returns a view of rows in the order of a projection") {
  const Tensor q = f32({2, 3, 5, 4}, "q");
  const Tensor y = scaled_dot_product_attention(q, q, q), rows = swapped(y);
  CHECK(rows.contiguous());
  CHECK(reshape(rows, {2, 5, 12}).buffer() == y.buffer());
}

TEST_CASE("scaled_dot_product_attention has the same gradients with a mask of ones and without") {
  std::vector<std::vector<Tensor>> gradients;
  for (const bool masked : {false, true}) {
    std::vector<Tensor> x{sample_normal({2, 2, 5, 4}, "q"), sample_normal({2, 2, 7, 4}, "k"),
                          sample_normal({2, 2, 7, 4}, "v")};
    for (const Tensor& each : x) require_grad(each);
    ScaledDotProductAttentionOptions options{.dropout_p = 0.25, .dropout_key = random_key(3, "sdpa", 1)};
    if (masked) options.attn_mask = Tensor::full({7}, 1, Dtype::u8);
    backward(scaled_dot_product_attention(x[0], x[1], x[2], options), sample_normal({2, 2, 5, 4}, "dy"));
    gradients.push_back({grad(x[0]), grad(x[1]), grad(x[2])});
  }
  for (std::size_t i = 0; i < 3; ++i)
    expect_none(difference("gradient", gradients[1][i], gradients[0][i], 64, epsilon(Dtype::f64)));
}

TEST_CASE("a query whose keys are all masked gets zeros and no gradient") {
  const Tensor q = sample_normal({1, 1, 2, 4}, "q");
  require_grad(q);
  const Tensor mask = Tensor::from(std::vector<std::uint8_t>{0, 0, 1, 1}, {2, 2});
  const Tensor y = scaled_dot_product_attention(q, q, q, {.attn_mask = mask});
  CHECK(raw::narrow(y, 2, 0, 1).to_vector<double>() == std::vector<double>(4, 0.0));
  backward(y, Tensor::full(y.shape(), 1, Dtype::f64));
  for (const double g : grad(q).to_vector<double>()) CHECK(std::isfinite(g));
}

TEST_CASE("scaled_dot_product_attention takes bf16 with a mask in f32") {
  const Tensor q = raw::cast(sample_normal({1, 2, 5, 4}, "q"), Dtype::bf16);
  CHECK(scaled_dot_product_attention(q, q, q, {.attn_mask = f32({5, 5}, "mask")}).dtype() == Dtype::bf16);
}

TEST_CASE("scaled_dot_product_attention names its layout where sizes do not fit") {
  const std::string op = "scaled_dot_product_attention: ";
  const Tensor q = Tensor::zeros({2, 6, 3, 8}), k = Tensor::zeros({2, 6, 5, 8});
  const auto call = [](const Tensor& a, const Tensor& b, const Tensor& c,
                       const ScaledDotProductAttentionOptions& options = {}) {
    return [=] { scaled_dot_product_attention(a, b, c, options); };
  };
  CHECK(error_of<ValueError>(call({}, k, k)) == op + "q is undefined");
  CHECK(error_of<ValueError>(call(q, k, {})) == op + "v is undefined");
  const Tensor rows = Tensor::zeros({2, 3, 8});
  CHECK(error_of<ShapeError>(call(rows, k, k)) ==
        op + "q has shape [2, 3, 8] ([batch, heads, time, head_size])");
  CHECK(error_of<ShapeError>(call(q, k, q)) ==
        op + "k and v differ: [2, 6, 5, 8] and [2, 6, 3, 8] (equal shapes)");
  const Tensor narrow_k = Tensor::zeros({2, 6, 5, 4});
  CHECK(error_of<ShapeError>(call(q, narrow_k, narrow_k)) ==
        op + "q has shape [2, 6, 3, 8] and k [2, 6, 5, 4] (one batch and one head_size: [batch, heads, time, "
             "head_size])");
  // [batch, time, heads, size] with another number of keys than queries.
  const Tensor keys = Tensor::zeros({2, 5, 3, 8});
  CHECK(
      error_of<ShapeError>(call(q, keys, keys)) ==
      op +
          "q [2, 6, 3, 8] has 6 heads and k [2, 5, 3, 8] has 5 (axis 1 of [batch, heads, time, head_size]: equal, "
          "or with enable_gqa a divisor; attention_bthd takes [batch, time, heads, head_size])");
  const Tensor shared = Tensor::zeros({2, 2, 5, 8});
  CHECK_THROWS_AS(scaled_dot_product_attention(q, shared, shared), ShapeError);
  CHECK(scaled_dot_product_attention(q, shared, shared, {.enable_gqa = true}).shape() == q.shape());
  CHECK_THROWS_AS(scaled_dot_product_attention(q, keys, keys, {.enable_gqa = true}), ShapeError);
  CHECK_THROWS_AS(scaled_dot_product_attention(q, raw::cast(k, Dtype::f64), k), DtypeError);
}

TEST_CASE("scaled_dot_product_attention refuses options that contradict or say nothing") {
  const std::string op = "scaled_dot_product_attention: ";
  const Tensor q = Tensor::zeros({2, 6, 3, 8});
  const auto error = [&](const ScaledDotProductAttentionOptions& options) {
    return error_of<ValueError>([&] { scaled_dot_product_attention(q, q, q, options); });
  };
  const Tensor mask = Tensor::full({3, 3}, 1, Dtype::u8);
  CHECK(error({.attn_mask = mask, .is_causal = true}) == op + "attn_mask and is_causal (one of them)");
  CHECK(error({.dropout_p = 1}) == op + "dropout_p 1 (at least 0 and below 1)");
  CHECK(contains(error({.dropout_p = 0.1}), op + "no key, and no DropoutScope on this thread"));
  AttentionOptions keyless;
  keyless.dropout = 0.1;
  CHECK(contains(error_of<ValueError>([&] { attention_bthd(q, q, q, keyless); }),
                 "attention_bthd: dropout 0.1 without a dropout_key"));
  CHECK(error({.scale = 0.0}) == op + "scale 0 (finite and not 0)");
  CHECK(error_of<ShapeError>([&] {
          scaled_dot_product_attention(q, q, q, {.attn_mask = Tensor::full({2, 3}, 1, Dtype::u8)});
        }) == op + "attn_mask [2, 3] does not broadcast to [2, 6, 3, 3] ([batch, heads, queries, keys])");
  CHECK(error_of<DtypeError>([&] {
          scaled_dot_product_attention(q, q, q, {.attn_mask = Tensor::full({3, 3}, 1, Dtype::i64)});
        }) == op + "attn_mask is i64 and q f32 (u8: 1 = takes part; or q's dtype: added to the scores)");
}
