// Attention to keys and values in two places: on the CPU the same as to those places joined, to the bit; and
// what fits.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/core/op_spec.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/spec_check.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::test;
using spec_check::normal;

namespace {

using Attention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

// The result and the gradients of q, k, v and the past, that of the past where it is wanted.
std::vector<Tensor> run(Attention function, const std::vector<Tensor>& inputs, AttentionOptions options,
                        bool joined, bool past_wanted) {
  std::vector<Tensor> x;
  for (const Tensor& input : inputs) {
    x.push_back(raw::alias(input));
    if (x.size() <= 3 || past_wanted) require_grad(x.back());
  }
  Tensor k = x[1], v = x[2];
  if (joined) {
    k = concat({x[3], k}, 1);
    v = concat({x[4], v}, 1);
  } else {
    options.past_keys = x[3];
    options.past_values = x[4];
  }
  const Tensor y = function(x[0], k, v, options);
  backward(y, normal(y.shape(), "cotangent", y.dtype()));
  std::vector<Tensor> results{y};
  for (const Tensor& one : x) results.push_back(requires_grad(one) ? grad(one) : Tensor());
  return results;
}

}  // namespace

TEST_CASE("attention to a past has the bits of attention to its keys joined with the others") {
  AttentionOptions options;
  options.band = {0, 40};
  options.head_scale = sample_normal({4}, "scale");
  options.bias = sample_normal({4, 41}, "bias");
  options.dropout = 0.25;
  options.dropout_key = random_key(5, "test_attention_past", 3);
  for (const Attention function : {Attention(attention_bthd), Attention(detail::attention_bthd_composed)})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
      for (const std::int64_t past : {0, 1, 37, 70})
        for (const bool past_wanted : {false, true}) {
          const std::vector<Tensor> x{normal({2, 33, 4, 16}, "q", dtype), normal({2, 33, 2, 16}, "k", dtype),
                                      normal({2, 33, 2, 16}, "v", dtype),
                                      normal({2, past, 2, 16}, "past k", dtype),
                                      normal({2, past, 2, 16}, "past v", dtype)};
          AttentionOptions of_dtype = options;
          const Dtype tables = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
          of_dtype.head_scale = raw::cast(options.head_scale, tables);
          of_dtype.bias = raw::cast(options.bias, tables);
          CAPTURE(past);
          const std::vector<Tensor> got = run(function, x, of_dtype, false, past_wanted),
                                    want = run(function, x, of_dtype, true, past_wanted);
          for (std::size_t i = 0; i < got.size(); ++i) CHECK(equal_bits(got[i], want[i]));
        }
}

// On a CPU narrow heads read the two places where they are.
TEST_CASE("attention to keys side by side has the bits of attention to both places joined") {
  constexpr std::int64_t kHeads = 3;
  for (const std::int64_t size : {4, 8, 16, 24})
    for (const std::int64_t past : {1, 37, 70, 300}) {
      const std::int64_t dim = kHeads * size;
      const std::vector<Tensor> x{normal({2, 33, dim}, "q", Dtype::f32),
                                  normal({2, 40, 2 * dim}, "own", Dtype::f32),
                                  normal({2, past, 2 * dim}, "past", Dtype::f32)};
      const auto results = [&](bool joined) {
        std::vector<Tensor> leaves;
        for (const Tensor& input : x) leaves.push_back(require_grad(raw::alias(input)));
        AttentionOptions options;
        options.causal = true;
        options.dropout = 0.25;
        options.dropout_key = random_key(5, "test_attention_past", 4);
        const Tensor own = joined ? concat({leaves[2], leaves[1]}, 1) : leaves[1];
        const Tensor y =
            attention_packed_keys(leaves[0], joined ? Tensor() : leaves[2], own, kHeads, options);
        backward(y, normal(y.shape(), "cotangent", Dtype::f32));
        return std::vector<Tensor>{y, grad(leaves[0]), grad(leaves[1]), grad(leaves[2])};
      };
      CAPTURE(size);
      CAPTURE(past);
      const std::vector<Tensor> got = results(false), want = results(true);
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(equal_bits(got[i], want[i]));
    }
}

TEST_CASE("attention to a past names what does not fit") {
  const auto f = [](const Shape& shape) { return Tensor::zeros(shape); };
  const Tensor q = f({2, 3, 6, 8}), k = f({2, 5, 6, 8});
  const auto call = [&](const Tensor& past_keys, const Tensor& past_values) {
    return [=] {
      AttentionOptions options;
      options.past_keys = past_keys;
      options.past_values = past_values;
      attention_bthd(q, k, k, options);
    };
  };
  const Tensor past = f({2, 4, 6, 8});
  CHECK(error_of<ValueError>(call(past, {})) ==
        "attention_bthd: past_keys without past_values (a past has both)");
  CHECK(error_of<ValueError>(call({}, past)) ==
        "attention_bthd: past_values without past_keys (a past has both)");
  CHECK(error_of<ShapeError>(call(past, f({2, 3, 6, 8}))) ==
        "attention_bthd: past_keys and past_values differ: [2, 4, 6, 8] and [2, 3, 6, 8] (equal shapes)");
  CHECK(
      error_of<ShapeError>(call(f({2, 4, 6, 4}), f({2, 4, 6, 4}))) ==
      "attention_bthd: past_keys have shape [2, 4, 6, 4] and k [2, 5, 6, 8] ([batch, keys, kv_heads, head_size], "
      "equal but for keys)");
  CHECK_THROWS_AS(call(raw::cast(past, Dtype::f64), raw::cast(past, Dtype::f64))(), DtypeError);
  AttentionOptions options;
  options.past_keys = options.past_values = past;
  CHECK(error_of<ValueError>([&] {
          attention_packed(f({2, 3, 144}), 6, options);
        }) ==
        "attention_packed: options.past_keys or past_values (give keys and values side by side as past)");
  // What is wrong with v is said of v, and not of the rows joined.
  CHECK(error_of<ShapeError>([&] {
          attention_bthd(q, k, f({2, 5, 6, 4}), options);
        }) == "attention_bthd: k and v differ: [2, 5, 6, 8] and [2, 5, 6, 4] (equal shapes)");
  CHECK_THROWS_AS(attention_bthd(q, k, raw::cast(k, Dtype::f64), options), DtypeError);
}

TEST_CASE("attention to keys side by side names what does not fit") {
  const auto call = [](const Shape& q, const Shape& past, const Shape& own, std::int64_t heads) {
    return [=] { attention_packed_keys(Tensor::zeros(q), Tensor::zeros(past), Tensor::zeros(own), heads); };
  };
  CHECK(error_of<ShapeError>(call({2, 3}, {2, 3, 8}, {2, 3, 8}, 1)) ==
        "attention_packed_keys: q has shape [2, 3] ([batch, queries, dim])");
  CHECK(error_of<ShapeError>(call({2, 3, 4}, {2, 3, 8}, {2, 3, 8}, 3)) ==
        "attention_packed_keys: heads must divide dim: heads 3, dim 4");
  CHECK(error_of<ShapeError>(call({2, 3, 4}, {2, 3, 4}, {2, 3, 8}, 2)) ==
        "attention_packed_keys: past has shape [2, 3, 4] and the queries [2, 3, 4] ([batch, rows, 2 dim])");
  AttentionOptions options;
  options.head_scale = Tensor::zeros({2});
  const Tensor q = Tensor::zeros({2, 3, 4}), rows = Tensor::zeros({2, 3, 8});
  CHECK_THROWS_WITH_AS(attention_packed_keys(q, rows, rows, 2, options),
                       doctest::Contains("options with tensors"), ValueError);
}

TEST_CASE("attention to a packed past names what does not fit") {
  const Tensor qkv = Tensor::zeros({2, 3, 12});
  CHECK(error_of<ShapeError>([&] {
          attention_packed(qkv, 2, {}, Tensor::zeros({2, 5, 4}));
        }) == "attention_packed: past has shape [2, 5, 4] and the queries [2, 3, 4] ([batch, rows, 2 dim])");
  CHECK_THROWS_AS(attention_packed(qkv, 2, {}, Tensor::zeros({2, 5, 8}, Dtype::f64)), DtypeError);
  CHECK(attention_packed(qkv, 2, {}, Tensor::zeros({2, 5, 8})).shape() == Shape{2, 3, 4});
}

TEST_CASE("attention makes unit vectors with a finite eps, and its packed forms do not") {
  AttentionOptions options;
  options.unit_eps = -1;
  const Tensor q = Tensor::zeros({2, 3, 2, 2}), rows = Tensor::zeros({2, 3, 8});
  CHECK_THROWS_WITH_AS(attention_bthd(q, q, q, options), doctest::Contains("eps is -1"), ValueError);
  options.unit_eps = 0.5;
  CHECK(error_of<ValueError>([&] {
          attention_packed(Tensor::zeros({2, 3, 12}), 2, options);
        }) == "attention_packed: unit_eps 0.5 (only attention_bthd scales queries and keys to length 1)");
  CHECK_THROWS_AS(attention_packed_keys(Tensor::zeros({2, 3, 4}), rows, rows, 2, options), ValueError);
}
