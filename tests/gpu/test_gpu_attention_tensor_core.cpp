// Attention in bf16 on tensor cores against plain loops in f64 on the same numbers: tiles and their tails,
// bands, every table and gradient, grouped heads, rows that are not aligned, the same bits twice. With
// mma.sync ("tensor_core") and with wgmma, which GPUs of other kinds than 9.0 compute by mma.sync.
//
// Tolerances are in units of 2^-8, the rounding of bf16, of the largest number expected. The result has two
// roundings, of the probabilities and its own; a gradient has four: of the probabilities or the gradients of
// the scores, of the result in delta, of the position in a table, its own. Their terms may be larger than the
// sum, some times: 4 and 16 are allowed. The gradient of head_scale is one number to a head, with terms of
// both signs: 16 of the sum of their sizes. (A head's scale scales its scores as q does, and its bias.)
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "gpu_test.h"
#include "ops/attention.h"
#include "tensor/error.h"
#include "tests/op/spec_check.h"

using namespace eddy;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

constexpr std::int64_t kFar = AttentionBand::kFar;
constexpr double kRounding = 0x1p-8;

struct Case {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
  std::int64_t least, most;
  bool head_scale, bias, positions, dropout;
  // Of q, k, v, head_scale, bias and positions, by bits.
  unsigned wanted = 63;
};
const Case kCases[] = {
    {1, 1, 1, 1, 1, 32, -kFar, kFar, false, false, false, false},
    {1, 5, 7, 2, 1, 48, -kFar, kFar, true, false, false, true},
    {1, 7, 5, 2, 2, 32, 0, kFar, true, true, true, false},  // some queries see no key
    {2, 33, 33, 4, 2, 48, 0, kFar, true, true, true, true},
    {1, 65, 65, 2, 1, 32, 0, kFar, false, true, false, false},
    {1, 65, 130, 1, 1, 64, 0, 40, true, true, true, true},
    {1, 70, 131, 1, 1, 64, 1, 37, false, false, true, false},
    {1, 35, 67, 1, 1, 128, 0, kFar, true, true, true, true},
    {1, 19, 81, 2, 1, 80, 3, 50, true, true, true, true},
    {1, 66, 70, 1, 1, 112, -5, 9, true, false, false, true},
    {1, 66, 40, 2, 2, 96, -30, -10, false, false, false, true},
    {1, 1, 200, 3, 1, 32, 0, 150, true, true, true, true},
    {1, 130, 130, 1, 1, 32, 20, 30, true, true, true, false},
    {70, 3, 4, 1, 1, 32, 0, kFar, true, true, true, true},  // more sequences than parts of a table's gradient
    {1, 40, 40, 2, 2, 32, 0, kFar, true, true, true, false, 1},
    {1, 40, 40, 2, 2, 32, 0, kFar, true, true, true, false, 2},
    {1, 40, 40, 2, 2, 32, 0, kFar, true, true, true, false, 4},
    {1, 40, 40, 2, 2, 32, 0, kFar, true, true, true, false, 8},
    {1, 40, 40, 2, 2, 32, 0, kFar, true, true, true, false, 16},
    {1, 40, 40, 2, 2, 32, 0, kFar, true, true, true, false, 32},
    {1, 130, 200, 2, 1, 128, 0, 128, true, true, true, true},
};
// Several tiles of keys to a block, of which its two halves see different ones.
const Case kLongCases[] = {
    {1, 140, 330, 1, 1, 64, 0, 100, false, true, false, false},
    {1, 192, 192, 1, 1, 128, 0, kFar, false, false, false, false},
    {1, 130, 260, 2, 1, 32, 1, 130, true, true, true, false},
};
const Case kLargeCases[] = {
    {2, 512, 1024, 8, 2, 64, 0, 512, true, true, true, true},
    {2, 1024, 1024, 4, 4, 128, 0, kFar, false, false, false, false},
};

// Takes the choice back at the end of a test.
struct OnTensorCores {
  explicit OnTensorCores(const char* kernel) { set_attention_kernel(kernel); }
  ~OnTensorCores() { set_attention_kernel("plain"); }
};

using Attention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

// The result, then the gradients that the case wants.
Tensors run(Attention function, const Case& c, const Tensors& inputs, const Tensor& dy) {
  Tensors x;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    x.push_back(inputs[i].defined() ? raw::alias(inputs[i]) : Tensor());
    if (inputs[i].defined() && (c.wanted >> i & 1u) != 0) require_grad(x.back());
  }
  AttentionOptions options;
  options.band = {c.least, c.most};
  options.scale = 0.37;
  if (c.dropout) {
    options.dropout = 0.3;
    options.dropout_key = random_key(3, "test_gpu_attention_tensor_core", 7);
  }
  options.head_scale = x[3];
  options.bias = x[4];
  options.positions = x[5];
  const Tensor y = function(x[0], x[1], x[2], options);
  backward(y, dy);
  Tensors results{detach(y)};
  for (const Tensor& leaf : x)
    results.push_back(leaf.defined() && requires_grad(leaf) ? grad(leaf) : Tensor());
  return results;
}

// Normals that a type can hold, in f64.
Tensor rounded_normal(const Shape& shape, const char* stream, Dtype dtype, double deviation = 1) {
  return raw::cast(raw::cast(sample_normal(shape, stream, deviation), dtype), Dtype::f64);
}

// Positions are rounded to bf16 by the kernels, and here.
Tensors inputs_of(const Case& c) {
  const std::int64_t distances = std::max<std::int64_t>(std::min(c.most, c.keys - 1) + 1, 0) + 3;
  const Shape keys{c.batch, c.keys, c.kv_heads, c.head_size};
  return {rounded_normal({c.batch, c.queries, c.heads, c.head_size}, "q", Dtype::bf16),
          rounded_normal(keys, "k", Dtype::bf16),
          rounded_normal(keys, "v", Dtype::bf16),
          c.head_scale ? rounded_normal({c.heads}, "head_scale", Dtype::f32) : Tensor(),
          c.bias ? rounded_normal({c.heads, distances}, "bias", Dtype::f32) : Tensor(),
          c.positions ? rounded_normal({distances, c.head_size}, "positions", Dtype::bf16, 0.3) : Tensor()};
}

// The numbers on the GPU, q, k and v as bf16 and the tables as f32; with a gap, inside wider rows of NaN.
Tensors on_gpu(const Tensors& inputs, std::int64_t gap) {
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    if (!x.defined()) {
      result.push_back(x);
      continue;
    }
    const Tensor typed = to_gpu(raw::cast(x, i < 3 ? Dtype::bf16 : Dtype::f32));
    if (gap == 0 || x.rank() == 1) {
      result.push_back(typed);
      continue;
    }
    Shape wide = x.shape();
    wide[x.rank() - 1] += gap;
    result.push_back(
        raw::narrow(Tensor::full(wide, std::numeric_limits<double>::quiet_NaN(), typed.dtype(), gpu()), -1,
                    gap, x.dim(-1)));
    raw::copy_into(result.back(), typed);
  }
  return result;
}

std::vector<double> numbers(const Tensor& x) {
  return raw::cast(x, Dtype::f64).to_vector<double>();
}

// "" or what is wrong with the gradient of head_scale; see the top.
std::string head_scale_difference(const std::string& what, const Tensor& got, const Tensors& inputs,
                                  const Tensors& want) {
  if (!want[4].defined()) return "";
  double largest = 0;
  for (std::int64_t h = 0; h < inputs[3].dim(0); ++h) {
    double terms = 0;
    const auto add = [&](const Tensor& x, const Tensor& dx, int axis) {
      if (!x.defined()) return;
      const std::vector<double> a = numbers(raw::select(x, axis, h)), b = numbers(raw::select(dx, axis, h));
      for (std::size_t i = 0; i < a.size(); ++i) terms += std::abs(a[i] * b[i]);
    };
    add(inputs[0], want[1], 2);
    add(inputs[4], want[5], 0);
    largest = std::max(largest, terms / std::abs(inputs[3].data<double>()[h]));
  }
  const std::vector<double> a = numbers(got), b = numbers(want[4]);
  for (std::size_t h = 0; h < a.size(); ++h)
    if (!(std::abs(a[h] - b[h]) <= 16 * kRounding * largest))
      return fmt::format("{}: head {}: {} and should be {}: more than 16 x 2^-8 x {}", what, h, a[h], b[h],
                         largest);
  return "";
}

void check(const Case& c) {
  const char* const names[] = {"y", "dq", "dk", "dv", "dhead_scale", "dbias", "dpositions"};
  const Tensors inputs = inputs_of(c);
  const Tensor dy = rounded_normal({c.batch, c.queries, c.heads, c.head_size}, "dy", Dtype::bf16);
  const Tensor gpu_dy = to_gpu(raw::cast(dy, Dtype::bf16));
  // With all gradients, for the sizes of terms; what a case does not want is not compared.
  Case all = c;
  all.wanted = 63;
  const Tensors want = run(attention_composed, all, inputs, dy);
  // Twice the same, then aligned with a stride, then not aligned: the same sums in the same order every time.
  Tensors first;
  for (const std::int64_t gap : {0, 0, 8, 1}) {
    if (kEmulated && gap == 8) continue;  // the code of 0, and slow there
    poison_gpu();
    const Tensors got = to_cpu(run(attention, c, on_gpu(inputs, gap), gpu_dy));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::string what =
          fmt::format("{} at queries {}, keys {}, heads {}/{}, head_size {}, band {} .. {}, gap {}", names[i],
                      c.queries, c.keys, c.heads, c.kv_heads, c.head_size, c.least, c.most, gap);
      if (i > 0 && (c.wanted >> (i - 1) & 1u) == 0) {
        CHECK_MESSAGE(!got[i].defined(), what);
        continue;
      }
      if (first.empty()) {
        const std::string text = i == 4 ? head_scale_difference(what, got[i], inputs, want)
                                        : difference(what, got[i], want[i], i == 0 ? 4 : 16, kRounding);
        CHECK_MESSAGE(text.empty(), text);
      } else {
        const std::string bits = bit_difference(what, got[i], first[i]);
        CHECK_MESSAGE(bits.empty(), bits);
      }
    }
    if (first.empty()) first = got;
  }
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE(
      "attention on tensor cores equals plain loops in result and every gradient and repeats its bits") {
    const OnTensorCores choice("tensor_core");
    for (const Case& c : kCases) check(c);
    if (!kEmulated)
      for (const Case& c : kLargeCases) check(c);
  }

  TEST_CASE("attention with wgmma equals plain loops in result and every gradient and repeats its bits") {
    const OnTensorCores choice("wgmma");
    for (const Case& c : kCases) check(c);
    for (const Case& c : kLongCases) check(c);
    if (!kEmulated)
      for (const Case& c : kLargeCases) check(c);
  }

  TEST_CASE("the kernels of attention differ in the last bits of bf16 and agree up to its rounding") {
    const Case c{1, 70, 90, 2, 1, 64, 0, kFar, false, false, false, false};
    const Tensors x = on_gpu(inputs_of(c), 0);
    const Tensor dy = to_gpu(raw::cast(sample_normal({1, 70, 2, 64}, "dy"), Dtype::bf16));
    const Tensors plain = to_cpu(run(attention, c, x, dy));
    for (const char* const kernel : {"tensor_core", "wgmma"}) {
      const OnTensorCores choice(kernel);
      const Tensors tensor_core = to_cpu(run(attention, c, x, dy));
      CHECK_FALSE(bit_difference("y", tensor_core[0], plain[0]).empty());
      for (std::size_t i = 0; i < 4; ++i) {
        const std::string text = difference(kernel, tensor_core[i], plain[i], i == 0 ? 4 : 16, kRounding);
        CHECK_MESSAGE(text.empty(), text);
      }
    }
  }

  TEST_CASE("f32 and heads of other sizes stay with the plain kernels of attention") {
    for (const auto& [dtype, head_size] : {std::pair{Dtype::f32, 64}, {Dtype::bf16, 40}, {Dtype::bf16, 16}}) {
      const Tensor x = to_gpu(raw::cast(sample_normal({1, 20, 1, head_size}, "x"), dtype));
      const Tensor plain = to_cpu(attention(x, x, x));
      const OnTensorCores choice("wgmma");
      const std::string bits = bit_difference("y", to_cpu(attention(x, x, x)), plain);
      CHECK_MESSAGE(bits.empty(), bits);
    }
  }

  TEST_CASE("a NaN or an infinity in a query reaches its own row of the result on tensor cores") {
    for (const auto& [kernel, bad] :
         {std::pair{"tensor_core", NAN}, {"tensor_core", INFINITY}, {"wgmma", NAN}, {"wgmma", INFINITY}}) {
      const OnTensorCores choice(kernel);
      const Tensor q = raw::cast(sample_normal({1, 70, 1, 32}, "q"), Dtype::f32);
      const Tensor k = to_gpu(raw::cast(sample_normal({1, 70, 1, 32}, "k"), Dtype::bf16));
      q.data<float>()[5 * 32] = bad;
      const std::vector<double> y = numbers(to_cpu(attention(to_gpu(raw::cast(q, Dtype::bf16)), k, k)));
      for (std::size_t row = 0; row < 70; ++row) CHECK(std::isnan(y[row * 32]) == (row == 5));
    }
  }
}

TEST_CASE("an unknown kernel of attention is refused by name") {
  CHECK_THROWS_AS(set_attention_kernel("fast"), ValueError);
}
