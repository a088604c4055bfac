// Window attention against attention over the two parts laid end to end, on both sides of the batch and the
// window at which the kernels change; its dropout; and the contract.
#include "ops/attention/window_attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/core/op_spec.h"
#include "ops/cpu/isa.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/isa_levels.h"
#include "tests/support/spec_check.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::test;
using spec_check::epsilon;

namespace {

struct Inputs {
  Tensor q, past, own;
};

Inputs inputs(std::int64_t batch, std::int64_t queries, std::int64_t own, std::int64_t past,
              std::int64_t dim) {
  return {sample_normal({batch, queries, dim}, "q"),
          past > 0 ? sample_normal({batch, past, 2 * dim}, "past") : Tensor(),
          sample_normal({batch, own, 2 * dim}, "own")};
}

Tensor by_attention(const Inputs& in, std::int64_t heads, double dropout = 0, RandomKey key = {}) {
  const std::int64_t dim = in.q.dim(2);
  const Tensor rows = in.past.defined() ? concat({in.past, in.own}, 1) : in.own;
  const std::vector<Tensor> parts = split(rows, 2, {dim, dim});
  const auto by_head = [&](const Tensor& x) { return reshape(x, {x.dim(0), x.dim(1), heads, dim / heads}); };
  AttentionOptions options;
  options.causal = true;
  options.dropout = dropout;
  options.dropout_key = key;
  return reshape(attention_bthd(by_head(in.q), by_head(parts[0]), by_head(parts[1]), options), in.q.shape());
}

struct WindowCase {
  std::int64_t batch, queries, own, past, dim, heads;
};
const std::vector<WindowCase> kWindowCases{
    {1, 3, 3, 4, 8, 2},
    {3, 3, 5, 0, 8, 4},
    {4, 5, 5, 7, 12, 3},
    {15, 1, 1, 0, 8, 1},
    {16, 6, 6, 6, 32, 4},
    {17, 7, 9, 5, 32, 2},
    {33, 2, 2, 3, 40, 5},
    {5, 1, 8, 8, 96, 6},
    {6, 7, 9, 5, 64, 2},
    {4, 100, 100, 100, 4, 1},  // more pairs than the lanes' kernel takes
    // Queries enough to lie side by side instead.
    {5, 32, 32, 32, 32, 4},
    {17, 13, 20, 11, 32, 2},
    {4, 30, 33, 19, 12, 3}};

// The result and the gradients of all inputs.
std::vector<Tensor> run(const Inputs& in, std::int64_t heads, bool window,
                        MatmulPrecision precision = MatmulPrecision::f32) {
  std::vector<Tensor> leaves;
  const auto leaf = [&](const Tensor& x) {
    if (!x.defined()) return x;
    leaves.push_back(require_grad(raw::alias(x)));
    return leaves.back();
  };
  const Inputs tracked{leaf(in.q), leaf(in.past), leaf(in.own)};
  AttentionOptions options;
  options.causal = true;
  options.precision = precision;
  const Tensor y = window ? attention_packed_keys(tracked.q, tracked.past, tracked.own, heads, options)
                          : by_attention(tracked, heads);
  backward(y, raw::cast(sample_normal(y.shape(), "cotangent"), y.dtype()));
  std::vector<Tensor> results{detach(y)};
  for (const Tensor& x : leaves) results.push_back(grad(x));
  return results;
}

}  // namespace

TEST_CASE("window attention equals attention over both parts for every batch and width of head") {
  for (const WindowCase& c : kWindowCases) {
    CAPTURE(c.batch);
    CAPTURE(c.dim);
    const Inputs in = inputs(c.batch, c.queries, c.own, c.past, c.dim);
    const std::vector<Tensor> wanted = run(in, c.heads, false);
    for (const Dtype dtype : {Dtype::f64, Dtype::f32})
      on_every_isa_level([&] {
        const auto of_dtype = [dtype](const Tensor& x) { return x.defined() ? raw::cast(x, dtype) : x; };
        const std::vector<Tensor> got =
            run({of_dtype(in.q), of_dtype(in.past), of_dtype(in.own)}, c.heads, true);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          CAPTURE(i);
          // Some hundred terms of order 1, each with a rounding or a few.
          CHECK(largest_difference(raw::cast(got[i], Dtype::f64), wanted[i]) <= 4096 * epsilon(dtype));
        }
      });
  }
}

TEST_CASE("window attention with rounded factors is near attention in f64") {
  for (const WindowCase& c : kWindowCases) {
    CAPTURE(c.batch);
    CAPTURE(c.dim);
    const auto rounded_to = [](const Tensor& x, Dtype dtype) {
      return x.defined() ? raw::cast(raw::cast(x, Dtype::bf16), dtype) : x;
    };
    const Inputs in = inputs(c.batch, c.queries, c.own, c.past, c.dim);
    const auto in_as = [&](Dtype dtype) {
      return Inputs{rounded_to(in.q, dtype), rounded_to(in.past, dtype), rounded_to(in.own, dtype)};
    };
    const std::vector<Tensor> wanted = run(in_as(Dtype::f64), c.heads, false);
    on_every_rounding_level([&] {
      const std::vector<Tensor> got = run(in_as(Dtype::f32), c.heads, true, MatmulPrecision::bf16);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        double largest = 1;
        for (const double x : numbers(wanted[i])) largest = std::max(largest, std::abs(x));
        CAPTURE(i);
        CHECK(largest_difference(raw::cast(got[i], Dtype::f64), wanted[i]) <= largest * 0x1p-6);
      }
    });
  }
}

TEST_CASE("window attention computes a gradient for the parts that want one only") {
  const Inputs in = inputs(5, 3, 3, 2, 8);
  AttentionOptions options;
  options.causal = true;
  const auto gradients = [&](bool q, bool past, bool own) {
    const Inputs x{raw::alias(in.q), raw::alias(in.past), raw::alias(in.own)};
    if (q) require_grad(x.q);
    if (past) require_grad(x.past);
    if (own) require_grad(x.own);
    backward(attention_packed_keys(x.q, x.past, x.own, 2, options), sample_normal(in.q.shape(), "cotangent"));
    return std::vector<Tensor>{q ? grad(x.q) : Tensor(), past ? grad(x.past) : Tensor(),
                               own ? grad(x.own) : Tensor()};
  };
  const std::vector<Tensor> all = gradients(true, true, true);
  for (int one = 0; one < 3; ++one) {
    const std::vector<Tensor> alone = gradients(one == 0, one == 1, one == 2);
    const auto at = static_cast<std::size_t>(one);
    CHECK(largest_difference(alone[at], all[at]) == 0);
  }
}

TEST_CASE("window attention drops the given share of probabilities and keeps their mean") {
  // Values of one: the result is the sum of what is kept of each row of probabilities.
  const std::int64_t batch = 64, rows = 16, dim = 8;
  const Tensor q = Tensor::zeros({batch, rows, dim}, Dtype::f32),
               own = Tensor::full({batch, rows, 2 * dim}, 1.0, Dtype::f32);
  AttentionOptions options;
  options.causal = true;
  options.dropout = 0.25;
  options.dropout_key = random_key(3, "window", 1);
  const std::vector<float> y = attention_packed_keys(q, {}, own, 4, options).to_vector<float>();
  double sum = 0, dropped = 0;
  for (const float v : y) sum += static_cast<double>(v) / static_cast<double>(y.size());
  for (std::int64_t b = 0; b < batch; ++b)  // the first row has one probability: 0 or 1 / (1 - rate)
    for (std::int64_t h = 0; h < 4; ++h) {
      const float v = y[static_cast<std::size_t>(b * rows * dim + h * 2)];
      CHECK((v == 0 || std::abs(v - 1 / 0.75F) < 1e-6F));
      dropped += v == 0 ? 1.0 / 256 : 0;
    }
  CHECK(std::abs(sum - 1) < 0.03);         // deviation 0.577 / sqrt(4096 heads' rows), less for long rows
  CHECK(std::abs(dropped - 0.25) < 0.11);  // four deviations of 256 draws
  options.dropout_key = random_key(3, "window", 2);
  CHECK(attention_packed_keys(q, {}, own, 4, options).to_vector<float>() != y);
}

TEST_CASE("window attention keeps what attention keeps whatever the instruction set") {
  // Values are one-hot by their key, so that each number of the result is one probability after dropout: 0
  // where it is dropped, for both. Rows of probabilities that begin with a counter's first word, that all
  // begin with another one, and that differ in it from sequence to sequence.
  struct WindowCase {
    std::int64_t batch, queries, own, past, heads;
  };
  for (const WindowCase& c : std::vector<WindowCase>{
           {17, 4, 4, 4, 2}, {5, 2, 4, 3, 2}, {19, 3, 4, 3, 1}, {33, 1, 1, 4, 3}, {5, 13, 13, 3, 2}})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      const std::int64_t keys = c.own + c.past, dim = c.heads * keys;
      const auto rows = [&](std::int64_t count, std::int64_t first) {
        std::vector<double> x(static_cast<std::size_t>(c.batch * count * 2 * dim));
        for (std::int64_t row = 0; row < c.batch * count; ++row)
          for (std::int64_t h = 0; h < c.heads; ++h)
            x[static_cast<std::size_t>((2 * row + 1) * dim + h * keys + first + row % count)] = 1;
        return raw::cast(Tensor::from(x, {c.batch, count, 2 * dim}), dtype);
      };
      const Inputs in{Tensor::zeros({c.batch, c.queries, dim}, dtype), rows(c.past, 0), rows(c.own, c.past)};
      AttentionOptions options;
      options.causal = true;
      options.dropout = 0.4;
      options.dropout_key = random_key(3, "kept", 1);
      on_every_isa_level([&] {
        CAPTURE(c.batch);
        const Tensor got = attention_packed_keys(in.q, in.past, in.own, c.heads, options),
                     wanted = by_attention(in, c.heads, options.dropout, options.dropout_key);
        CHECK(largest_difference(got, wanted) <=
              4 * epsilon(dtype));  // probabilities are 1/n, divided by 0.6
      });
    }
}

TEST_CASE("window attention names what does not fit") {
  const Inputs in = inputs(4, 3, 3, 2, 8);
  AttentionOptions options;
  options.causal = true;
  std::int64_t heads = 2;
  const auto text = [&](const Tensor& q, const Tensor& past, const Tensor& own) {
    return error_of<ShapeError>([&] { attention_packed_keys(q, past, own, heads, options); });
  };
  CHECK(contains(text(sample_normal({4, 3}, "q"), in.past, in.own), "[batch, queries, dim]"));
  CHECK(contains(text(in.q, sample_normal({5, 2, 16}, "p"), in.own), "past"));
  CHECK(contains(text(in.q, in.past, sample_normal({4, 3, 8}, "o")), "own"));
  heads = 3;
  CHECK(contains(text(in.q, in.past, in.own), "heads 3, dim 8"));
  heads = 2;
  options.dropout = 1;
  CHECK(!error_of<ValueError>([&] { attention_packed_keys(in.q, in.past, in.own, heads, options); }).empty());
  options.dropout = 0;
  CHECK(!error_of<DtypeError>([&] {
           attention_packed_keys(in.q, raw::cast(in.past, Dtype::f32), in.own, heads, options);
         }).empty());
}
