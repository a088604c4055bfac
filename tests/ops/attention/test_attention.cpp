// Blocked attention against its composed form, on every instruction set of this processor, and the contract
// of its forms.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/core/op_spec.h"
#include "ops/cpu/isa.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/threads/thread_pool.h"
#include "tests/support/errors.h"
#include "tests/support/isa_levels.h"
#include "tests/support/spec_check.h"
#include "tests/support/tensors.h"
#include "tests/support/threads.h"

using namespace eddy;
using namespace eddy::test;
using spec_check::normal;

namespace {

void check_close(const Tensor& got, const Tensor& wanted, double tolerance, const std::string& what) {
  REQUIRE(got.shape() == wanted.shape());
  const std::vector<double> a = numbers(got), b = numbers(wanted);
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < a.size() && !std::isnan(worst); ++i)
    if (const double error = std::abs(a[i] - b[i]); !(error <= worst)) {
      worst = error;
      at = i;
    }
  INFO(what << ": element " << at << ": " << (a.empty() ? 0 : a[at]) << " and " << (b.empty() ? 0 : b[at]));
  CHECK(worst <= tolerance);
}

using Attention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

// The result and the gradients of q, k, v for a fixed random cotangent.
std::vector<Tensor> run(Attention function, const std::vector<Tensor>& inputs,
                        const AttentionOptions& options) {
  std::vector<Tensor> x;
  for (const Tensor& input : inputs) x.push_back(require_grad(raw::alias(input)));
  const Tensor y = function(x[0], x[1], x[2], options);
  backward(y, normal(y.shape(), "cotangent", y.dtype()));
  return {y, grad(x[0]), grad(x[1]), grad(x[2])};
}

struct Case {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
};
const Case kCases[] = {{1, 1, 1, 1, 1, 1},
                       {2, 65, 65, 3, 3, 16},
                       {1, 300, 300, 2, 1, 24},
                       {1, 50, 270, 4, 2, 64},
                       {2, 7, 5, 2, 2, 10},
                       {1, 1, 600, 2, 2, 32},
                       {1, 2, 70, 2, 1, 20},
                       {1, 100, 30, 6, 2, 80},
                       {1, 49, 257, 1, 1, 3},
                       // Heads that AVX-512 takes 16 queries at a time.
                       {2, 37, 37, 2, 2, 8},
                       {1, 70, 300, 4, 2, 8},
                       {2, 20, 9, 2, 1, 4},
                       {1, 4, 33, 4, 4, 16}};

std::vector<Tensor> inputs_of(const Case& c, Dtype dtype) {
  return {normal({c.batch, c.queries, c.heads, c.head_size}, "q", dtype),
          normal({c.batch, c.keys, c.kv_heads, c.head_size}, "k", dtype),
          normal({c.batch, c.keys, c.kv_heads, c.head_size}, "v", dtype)};
}

AttentionOptions with_dropout(AttentionOptions options) {
  options.dropout = 0.25;
  options.dropout_key = random_key(5, "test_attention", 3);
  return options;
}

// Sums over up to 300 keys or queries of products of size 3 or less: some 64 roundings of values below 16.
double tolerance_of(Dtype dtype) {
  return 64 * 16 * (dtype == Dtype::f32 ? 0x1p-24 : 0x1p-53);
}

// On every instruction set.
void compare_with_composed(Dtype dtype, const AttentionOptions& options) {
  for (const Case& c : kCases) {
    const std::vector<Tensor> inputs = inputs_of(c, dtype);
    const std::vector<Tensor> composed = run(detail::attention_bthd_composed, inputs, options);
    on_every_isa_level([&] {
      const std::vector<Tensor> blocked = run(attention_bthd, inputs, options);
      const char* const names[] = {"y", "dq", "dk", "dv"};
      for (std::size_t i = 0; i < 4; ++i)
        check_close(blocked[i], composed[i], tolerance_of(dtype),
                    fmt::format("{} at queries {}, keys {}, head_size {}, {}", names[i], c.queries, c.keys,
                                c.head_size, isa_name(isa_level())));
    });
  }
}

}  // namespace

TEST_CASE("blocked attention equals its composed form in result and gradients on every instruction set") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const bool causal : {false, true}) {
      AttentionOptions options;
      options.causal = causal;
      compare_with_composed(dtype, options);
      compare_with_composed(dtype, with_dropout(options));
    }
}

// Adam moves a parameter by its full rate however small its gradient is.
TEST_CASE("over one visible key attention has gradients of exactly 0 for queries and keys") {
  const auto check = [](MatmulPrecision precision) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64})
      for (const Case& c : {Case{2, 1, 1, 2, 2, 32},
                            {1, 3, 1, 4, 2, 24},
                            {2, 9, 9, 2, 2, 10},
                            {1, 200, 200, 3, 1, 64},
                            {2, 40, 40, 2, 1, 8}})
        for (const bool drops : {false, true}) {
          const bool scaled = c.head_size != 8;  // a table, which narrow heads are not given
          AttentionOptions options;
          options.precision = precision;
          if (c.queries == c.keys) options.band = {0, 0};
          if (drops) options = with_dropout(options);
          std::vector<Tensor> inputs = inputs_of(c, dtype);
          for (Tensor& input : inputs) input = require_grad(raw::alias(input));
          if (scaled) options.head_scale = require_grad(Tensor::full({c.heads}, 1.5, dtype));
          const Tensor y = attention_bthd(inputs[0], inputs[1], inputs[2], options);
          backward(y, normal(y.shape(), "cotangent", dtype));
          for (const Tensor& x : {inputs[0], inputs[1], scaled ? options.head_scale : inputs[0]})
            for (const double gradient : numbers(grad(x))) CHECK(gradient == 0);
          CHECK(sum(abs(grad(inputs[2]))).item() > 0);
        }
  };
  on_every_isa_level([&] { check(MatmulPrecision::f32); });
  on_every_rounding_level([&] { check(MatmulPrecision::bf16); });
}

namespace {

// Attention with rounded factors, and its composed form in f64 of the same factors.
struct RoundedCall {
  std::vector<Tensor> inputs, tables;  // q, k, v; a scale for each head, bias, positions
  std::int64_t most;

  RoundedCall(const Case& c, std::int64_t most_distance)
      : inputs(inputs_of(c, Dtype::f32)), most(most_distance) {
    for (const Shape& shape : {Shape{c.heads}, Shape{c.heads, most + 1}, Shape{most + 1, c.head_size}})
      tables.push_back(normal(shape, "table", Dtype::f32));
    for (std::vector<Tensor>* list : {&inputs, &tables})
      for (Tensor& x : *list) x = raw::cast(raw::cast(x, Dtype::bf16), Dtype::f32);
  }
  // The result, then the gradients of all inputs and tables.
  std::vector<Tensor> gradients(Attention function, Dtype dtype) const {
    const auto in = [dtype](const std::vector<Tensor>& list) {
      std::vector<Tensor> result;
      for (const Tensor& x : list) result.push_back(raw::cast(x, dtype));
      return result;
    };
    AttentionOptions options = with_dropout({});
    options.band = {0, most};
    options.precision = MatmulPrecision::bf16;
    const std::vector<Tensor> t = in(tables);
    options.head_scale = require_grad(t[0]);
    options.bias = require_grad(t[1]);
    options.positions = require_grad(t[2]);
    std::vector<Tensor> results = run(function, in(inputs), options);
    for (const Tensor& table : t) results.push_back(grad(table));
    return results;
  }
};

}  // namespace

// Every product has factors that are off by up to 2^-9 of themselves. The gradient of a head's scale is one sum over
// all pairs and small by cancellation.
TEST_CASE("attention with rounded factors is near its composed form, whatever its memory held before") {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.push_back({1, 130, 330, 2, 1, 40});
  for (const Case& c : cases)
    for (const std::int64_t most : {c.keys - 1, std::int64_t{37}, std::int64_t{1}}) {
      if (most > c.keys - 1 || c.keys < c.queries) continue;
      const RoundedCall call(c, most);
      const std::vector<Tensor> want = call.gradients(detail::attention_bthd_composed, Dtype::f64);
      on_every_rounding_level([&] {
        const std::vector<Tensor> got = call.gradients(attention_bthd, Dtype::f32);
        const std::vector<Tensor> again = call.gradients(attention_bthd, Dtype::f32);
        const char* const names[] = {"y", "dq", "dk", "dv", "dhead_scale", "dbias", "dpositions"};
        for (std::size_t i = 0; i < 7; ++i) {
          double largest = 1;
          for (const double x : numbers(want[i])) largest = std::max(largest, std::abs(x));
          check_close(got[i], want[i], largest * (i == 4 ? 0x1p-3 : 0x1p-6),
                      fmt::format("{} at queries {}, keys {}, head_size {}, most {}", names[i], c.queries,
                                  c.keys, c.head_size, most));
          CHECK(equal_bits(got[i], again[i]));
        }
      });
    }
}

TEST_CASE("a sequence has the same bits alone and in a batch, with rounded factors too") {
  const Case c{3, 70, 90, 4, 2, 40};
  for (const MatmulPrecision precision : {MatmulPrecision::f32, MatmulPrecision::bf16})
    on_every_rounding_level([&] {
      AttentionOptions options;
      options.band = {0, 60};
      options.precision = precision;
      const std::vector<Tensor> batch = inputs_of(c, Dtype::f32), all = run(attention_bthd, batch, options);
      std::vector<Tensor> one;
      for (const Tensor& x : batch) one.push_back(raw::copy(raw::narrow(x, 0, 0, 1)));
      const std::vector<Tensor> alone = run(attention_bthd, one, options);
      CHECK(equal_bits(alone[0], raw::copy(raw::narrow(all[0], 0, 0, 1))));
    });
}

TEST_CASE("attention takes a negative or large scale") {
  AttentionOptions options;
  const std::vector<Tensor> inputs = inputs_of({1, 20, 20, 2, 2, 16}, Dtype::f64);
  for (const double scale : {-0.5, 4.0}) {
    options.scale = scale;
    check_close(attention_bthd(inputs[0], inputs[1], inputs[2], options),
                detail::attention_bthd_composed(inputs[0], inputs[1], inputs[2], options),
                tolerance_of(Dtype::f64), "y");
  }
}

TEST_CASE("attention over scores of thousands stays finite and right") {
  std::vector<Tensor> inputs = inputs_of({1, 300, 300, 1, 1, 16}, Dtype::f64);
  inputs[0] = raw::cast(sample_normal({1, 300, 1, 16}, "q", 1000), Dtype::f64);
  const std::vector<Tensor> blocked = run(attention_bthd, inputs, {}),
                            composed = run(detail::attention_bthd_composed, inputs, {});
  // Scores of some 5000 are known to 5000 roundings, and the gradient of k is 1000 times that of unit
  // queries.
  for (std::size_t i = 0; i < 4; ++i)
    check_close(blocked[i], composed[i], 5000 * 1000 * 64 * 0x1p-53, "large");
}

TEST_CASE(
    "in f64 a saturated attention moves neither queries nor keys, however large they and the values are") {
  for (const std::int64_t queries : {1, 5, 40}) {
    CAPTURE(queries);
    // Scores some 1e9 apart: one probability is 1, the others are 0.
    const auto huge = [](const Shape& shape, const char* stream) {
      return raw::cast(sample_normal(shape, stream, 1e5), Dtype::f64);
    };
    const Shape shape{2, queries, 3, 16};
    AttentionOptions options;
    options.causal = true;
    const std::vector<Tensor> inputs{huge(shape, "q"), huge(shape, "k"), huge(shape, "v")};
    const std::vector<Tensor> result = run(attention_bthd, inputs, options);
    for (const int i : {1, 2})
      for (const double x : numbers(result[static_cast<std::size_t>(i)])) CHECK(x == 0);
  }
}

TEST_CASE("attention of a packed projection is the attention of its slices to the bit") {
  const std::int64_t heads = 3, head_size = 20, dim = heads * head_size;
  for (const std::int64_t time : {1, 4, 70}) {
    AttentionOptions options = with_dropout({});
    options.causal = true;
    const Tensor qkv = require_grad(normal({2, time, 3 * dim}, "qkv", Dtype::f32));
    std::vector<Tensor> slices;
    for (int i = 0; i < 3; ++i)
      slices.push_back(raw::reshape(raw::narrow(qkv, 2, i * dim, dim), {2, time, heads, head_size}));
    const std::vector<Tensor> separate = run(attention_bthd, slices, options);
    const Tensor y = attention_packed(qkv, heads, options);
    backward(y, raw::reshape(normal({2, time, heads, head_size}, "cotangent", Dtype::f32), y.shape()));
    CHECK(equal_bits(raw::reshape(y, {2, time, heads, head_size}), separate[0]));
    for (int i = 0; i < 3; ++i)
      CHECK(equal_bits(
          raw::copy(raw::reshape(raw::narrow(grad(qkv), 2, i * dim, dim), {2, time, heads, head_size})),
          separate[static_cast<std::size_t>(i) + 1]));
  }
}

TEST_CASE("attention gives the same bits with one thread and with three") {
  const Threads keep(thread_count());
  AttentionOptions options = with_dropout({});
  options.causal = true;
  const std::vector<Tensor> inputs = inputs_of({2, 290, 290, 4, 2, 32}, Dtype::f32);
  const auto compare = [&] {
    set_thread_count(1);
    const std::vector<Tensor> one = run(attention_bthd, inputs, options);
    set_thread_count(3);
    const std::vector<Tensor> three = run(attention_bthd, inputs, options);
    for (std::size_t i = 0; i < 4; ++i) CHECK(equal_bits(one[i], three[i]));
  };
  compare();
  options.precision = MatmulPrecision::bf16;
  on_every_rounding_level(compare);
}

TEST_CASE("attention needs memory that grows with the length and not with its square") {
  const auto peak_of = [](std::int64_t time) {
    const Tensor qkv = require_grad(normal({1, time, 3 * 32}, "memory"));
    Allocator& memory = allocator(kCpu);
    memory.reset_peak();
    const std::int64_t before = memory.stats().live_bytes;
    const Tensor y = attention_packed(qkv, 2, {});
    backward(y, y);
    return memory.stats().peak_bytes - before;
  };
  const std::int64_t score_bytes = 2 * 1024 * 1024 * 4;
  const std::int64_t shorter = peak_of(512), longer = peak_of(1024);
  CHECK(longer - shorter < score_bytes / 8);
  CHECK(longer <= 2 * shorter);
}

TEST_CASE("a causal query does not see later keys") {
  AttentionOptions options;
  options.causal = true;
  std::vector<Tensor> inputs = inputs_of({1, 60, 64, 2, 2, 16}, Dtype::f32);
  const Tensor before = attention_bthd(inputs[0], inputs[1], inputs[2], options);
  for (int i = 1; i < 3; ++i) raw::fill(raw::narrow(inputs[static_cast<std::size_t>(i)], 1, 40, 24), 7);
  const Tensor after = attention_bthd(inputs[0], inputs[1], inputs[2], options);
  // Query j sees the keys up to j + 4: the first that sees key 40 is query 36.
  CHECK(equal_bits(raw::copy(raw::narrow(before, 1, 0, 36)), raw::copy(raw::narrow(after, 1, 0, 36))));
  CHECK_FALSE(equal_bits(raw::copy(raw::narrow(before, 1, 36, 1)), raw::copy(raw::narrow(after, 1, 36, 1))));
}

TEST_CASE("a query that sees no key gives zeros and takes no gradient") {
  AttentionOptions options;
  options.causal = true;
  const std::vector<Tensor> results =
      run(attention_bthd, inputs_of({1, 60, 10, 1, 1, 8}, Dtype::f64), options);
  for (const double y : numbers(raw::narrow(results[0], 1, 0, 50))) CHECK(y == 0);
  for (const double dq : numbers(raw::narrow(results[1], 1, 0, 50))) CHECK(dq == 0);
  const std::vector<Tensor> no_keys = run(attention_bthd, inputs_of({1, 3, 0, 1, 1, 8}, Dtype::f64), {});
  for (const double y : numbers(no_keys[0])) CHECK(y == 0);
  CHECK(no_keys[2].shape() == Shape{1, 0, 1, 8});
}

TEST_CASE("one query at a time gives what all queries at once give") {
  AttentionOptions options;
  options.causal = true;
  const std::vector<Tensor> x = inputs_of({2, 40, 40, 4, 2, 32}, Dtype::f32);
  const Tensor whole = attention_bthd(x[0], x[1], x[2], options);
  for (const std::int64_t t : {0, 17, 39})
    check_close(attention_bthd(raw::narrow(x[0], 1, t, 1), raw::narrow(x[1], 1, 0, t + 1),
                               raw::narrow(x[2], 1, 0, t + 1), options),
                raw::narrow(whole, 1, t, 1), tolerance_of(Dtype::f32), "decoded");
}

TEST_CASE("attention of a tensor with itself sums the three gradients") {
  const Tensor x = normal({1, 9, 2, 4}, "self", Dtype::f64);
  const std::vector<Tensor> apart = run(attention_bthd, {raw::copy(x), raw::copy(x), raw::copy(x)}, {});
  const Tensor self = require_grad(raw::copy(x));
  const Tensor y = attention_bthd(self, self, self);
  backward(y, normal(y.shape(), "cotangent", Dtype::f64));
  const Tensor sum = raw::copy(apart[1]);
  raw::add_into(sum, apart[2]);
  raw::add_into(sum, apart[3]);
  check_close(grad(self), sum, tolerance_of(Dtype::f64), "gradient");
}

TEST_CASE("attention computes a gradient for the inputs that want one only") {
  const std::vector<Tensor> inputs = inputs_of({1, 20, 20, 2, 1, 16}, Dtype::f32);
  const std::vector<Tensor> all = run(attention_bthd, inputs, {});
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<Tensor> x;
    for (const Tensor& input : inputs) x.push_back(raw::alias(input));
    require_grad(x[i]);
    const Tensor y = attention_bthd(x[0], x[1], x[2]);
    backward(y, normal(y.shape(), "cotangent"));
    CHECK(equal_bits(grad(x[i]), all[i + 1]));
  }
}

TEST_CASE("a NaN in a query reaches its own row of the result") {
  const std::vector<Tensor> x = inputs_of({1, 12, 12, 1, 1, 16}, Dtype::f32);
  x[0].mutable_data<float>()[5 * 16] = NAN;
  const Tensor y = attention_bthd(x[0], x[1], x[2]);
  for (std::int64_t row = 0; row < 12; ++row) CHECK(std::isnan(y.data<float>()[row * 16]) == (row == 5));
}

TEST_CASE("attention names what does not fit") {
  const auto f = [](const Shape& shape) { return Tensor::zeros(shape); };
  const Tensor q = f({2, 3, 6, 8}), k = f({2, 5, 6, 8});
  const auto call = [](const Tensor& a, const Tensor& b, const Tensor& c,
                       const AttentionOptions& options = {}) {
    return [=] { attention_bthd(a, b, c, options); };
  };
  const Tensor four = f({2, 5, 4, 8}), short_head = f({2, 5, 6, 4}), one_batch = f({1, 5, 6, 8});
  CHECK(error_of<ShapeError>(call(q, four, four)) ==
        "attention_bthd: kv_heads must divide heads: heads 6, kv_heads 4");
  CHECK(error_of<ShapeError>(call(q, k, four)) ==
        "attention_bthd: k and v differ: [2, 5, 6, 8] and [2, 5, 4, 8] (equal shapes)");
  CHECK(error_of<ShapeError>(call(q, short_head, short_head)) ==
        "attention_bthd: head sizes differ: q 8, k 4 (one head_size)");
  CHECK(error_of<ShapeError>(call(q, one_batch, one_batch)) ==
        "attention_bthd: batch sizes differ: q 2, k 1 (one batch)");
  CHECK(error_of<ShapeError>(call(f({2, 3, 8}), k, k)) ==
        "attention_bthd: q has shape [2, 3, 8] ([batch, queries, heads, head_size])");
  CHECK(error_of<ShapeError>(call(q, f({2, 3, 8}), k)) ==
        "attention_bthd: k has shape [2, 3, 8] ([batch, keys, kv_heads, head_size])");
  CHECK(error_of<ValueError>(call({}, k, k)) == "attention_bthd: q is undefined");
  CHECK(error_of<DtypeError>(call(q, raw::cast(k, Dtype::f64), k)).find("f32 and f64") != std::string::npos);
  CHECK(error_of<DtypeError>(call(Tensor::zeros({1, 1, 1, 1}, Dtype::bf16), k, k)).find("bf16 and f32") !=
        std::string::npos);
  CHECK(error_of<DtypeError>(call(Tensor::zeros({1, 1, 1, 1}, Dtype::i64), k, k)).find("q is i64") !=
        std::string::npos);
  AttentionOptions options;
  options.dropout = 1;
  CHECK(error_of<ValueError>(call(q, k, k, options)) == "attention_bthd: dropout 1 (at least 0 and below 1)");
  options.dropout = NAN;
  CHECK(error_of<ValueError>(call(q, k, k, options)).find("dropout nan") != std::string::npos);
  options = {};
  options.scale = INFINITY;
  CHECK(error_of<ValueError>(call(q, k, k, options)).find("scale inf") != std::string::npos);
}

TEST_CASE("packed attention names what does not fit") {
  const auto call = [](const Shape& shape, std::int64_t heads) {
    return [=] { attention_packed(Tensor::zeros(shape), heads); };
  };
  CHECK(error_of<ShapeError>(call({2, 3}, 1)) ==
        "attention_packed: qkv has shape [2, 3] ([batch, time, 3 dim])");
  CHECK(error_of<ValueError>(call({1, 2, 9}, 0)) == "attention_packed: heads 0 (at least 1)");
  CHECK(error_of<ShapeError>(call({1, 2, 24}, 5)) ==
        "attention_packed: 3 heads must divide the width: width 24, heads 5 (columns q, k, v of dim each)");
  CHECK(attention_packed(Tensor::zeros({0, 4, 24}), 4).shape() == Shape{0, 4, 8});
}

TEST_CASE("attention reads the gradient of its result where it lies") {
  for (const Case& c : kCases) {
    const std::vector<Tensor> inputs = inputs_of(c, Dtype::f32);
    const Tensor wide = normal({c.batch, c.queries, 2 * c.heads, c.head_size}, "wide");
    const Tensor dy = raw::narrow(wide, 2, c.heads, c.heads);
    std::vector<Tensor> gradients[2];
    for (const bool packed : {false, true}) {
      std::vector<Tensor> x;
      for (const Tensor& input : inputs) x.push_back(require_grad(raw::alias(input)));
      backward(attention_bthd(x[0], x[1], x[2]), packed ? raw::copy(dy) : dy);
      for (const Tensor& one : x) gradients[packed ? 1 : 0].push_back(grad(one));
    }
    for (std::size_t i = 0; i < 3; ++i) CHECK(equal_bits(gradients[0][i], gradients[1][i]));
  }
}

TEST_CASE("two calls with one head scale give it the sum of their gradients") {
  const std::vector<Tensor> x = inputs_of({2, 65, 65, 3, 3, 16}, Dtype::f64);
  AttentionOptions options;
  const auto gradient = [&](int calls, int first) {
    options.head_scale = require_grad(normal({3}, "head scale", Dtype::f64));
    std::vector<Tensor> ys, dys;
    for (int i = first; i < first + calls; ++i) {
      ys.push_back(attention_bthd(x[0], x[1], x[2], options));
      dys.push_back(normal(ys.back().shape(), i == 0 ? "first" : "second", Dtype::f64));
    }
    backward(ys, dys);
    return grad(options.head_scale);
  };
  const Tensor both = gradient(1, 0);
  raw::add_into(both, gradient(1, 1));
  check_close(gradient(2, 0), both, 1e-12, "head scale");
}
