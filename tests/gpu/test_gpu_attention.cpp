// Attention of f32 on the GPU at sizes that cross its tiles, with every table and its gradient, against plain loops
// in f64: in f32, and with products in TF32. The samples of the ops' records are smaller than a tile.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tests/gpu/support/attention_case.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

const AttentionCase kMoreCases[] = {
    {1, 3, 9, 2, 1, 5, 0, kFar, true, true, true, true, kAllWanted, 4},
    {1, 17, 70, 1, 1, 256, 0, 40, true, true, true, true, kAllWanted, 37},
    {2, 19, 40, 2, 1, 17, 1, 20, true, true, false, false, kPastUnwanted, 21},
};

const AttentionCase kCases[] = {
    {1, 1, 1, 1, 1, 1, -kFar, kFar, false, false, false, false},
    {1, 5, 7, 2, 1, 3, -kFar, kFar, true, false, false, true},
    {1, 7, 5, 2, 2, 5, 0, kFar, true, true, true, false},  // some queries see no key
    {2, 33, 33, 4, 2, 17, 0, kFar, true, true, true, true},
    {1, 65, 65, 2, 1, 32, 0, kFar, false, true, false, false},
    {1, 65, 130, 1, 1, 33, 0, 40, true, true, true, true},
    {1, 70, 131, 1, 1, 64, 1, 37, false, false, true, false},
    {2, 17, 81, 2, 1, 65, 3, 50, true, true, true, true},
    {1, 35, 67, 1, 1, 128, 0, kFar, true, true, true, true},
    {1, 19, 35, 2, 1, 129, 0, 20, true, true, true, true},
    {1, 17, 33, 1, 1, 256, -kFar, kFar, true, false, false, true},
    {1, 66, 70, 1, 1, 20, -5, 9, true, false, false, true},
    {1, 66, 40, 2, 2, 20, -30, -10, false, false, false, true},
    {1, 1, 200, 3, 1, 40, 0, 150, true, true, true, true},
    {1, 130, 130, 1, 1, 8, 20, 30, true, true, true, false},
    {3, 6, 9, 70, 35, 4, 0, kFar, true, true, true, false},  // more heads than parts of a table's gradient
    {90, 3, 4, 1, 1, 4, 0, kFar, true, true, true, true},    // more sequences than parts
    {1, 40, 40, 2, 2, 12, 0, kFar, true, true, true, false, 1},
    {1, 40, 40, 2, 2, 12, 0, kFar, true, true, true, false, 2},
    {1, 40, 40, 2, 2, 12, 0, kFar, true, true, true, false, 4},
    {1, 40, 40, 2, 2, 12, 0, kFar, true, true, true, false, 8},
    {1, 40, 40, 2, 2, 12, 0, kFar, true, true, true, false, 16},
    {1, 40, 40, 2, 2, 12, 0, kFar, true, true, true, false, 32},
    {70, 121, 3, 2, 1, 4, 0, kFar, true, false, false, false, 8},  // three parts of a head's scale
    {2, 300, 520, 4, 2, 64, 0, 256, true, true, true, true},
};

std::vector<AttentionCase> all_cases() {
  std::vector<AttentionCase> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kMoreCases), std::end(kMoreCases));
  cases.insert(cases.end(), std::begin(kPastCases), std::end(kPastCases));
  return cases;
}

// As the ops' records: 64 roundings of a result, 4 times as many and 16 of a gradient.
constexpr AttentionRoundings kRoundings{64, 272, 272, 0x1p-23};

// TF32, on tensor cores, with the cases of test_gpu_attention_tensor_core.cpp. It rounds to the nearest of 11
// significant bits, an error of up to u = 2^-11. Numbers of TF32 are products' operands as they are; then the result
// has one rounding, of the probabilities, and a gradient two: of the probabilities or the gradients of the scores, and
// of what reaches delta through the result. So the bounds of bf16 (4, 16 and 16 roundings) hold in units of u. Any
// other f32 becomes an operand by one rounding: attention then has the bits of the rounded numbers, but for delta, do .
// o, which reads do as it is: one rounding more.
constexpr double kTf32Rounding = 0x1p-11;
constexpr AttentionRoundings kTf32Roundings{4, 16, 16, kTf32Rounding};

AttentionCase in_tf32(AttentionCase c) {
  c.precision = MatmulPrecision::tf32;
  return c;
}

// Numbers in f64 as numbers of TF32.
Tensor tf32_of(const Tensor& x) {
  if (!x.defined()) return x;
  Tensor rounded = raw::copy(raw::cast(x, Dtype::f32));
  float* const numbers = rounded.mutable_data<float>();
  for (std::int64_t i = 0; i < rounded.elements(); ++i)
    numbers[i] = std::bit_cast<float>((std::bit_cast<std::uint32_t>(numbers[i]) + 0x1000u) & 0xffffe000u);
  return raw::cast(rounded, Dtype::f64);
}
// The same of q, k, v, positions and the past; scales and bias are no operands of products.
Tensors operands_of(Tensors inputs) {
  for (const std::size_t i : {0, 1, 2, 5, 6, 7}) inputs[i] = tf32_of(inputs[i]);
  return inputs;
}

// On the GPU, with a gap inside wider rows of NaN, the past's wider by `past_gap`.
Tensors tf32_on_gpu(const Tensors& inputs, std::int64_t own_gap = 0, std::int64_t past_gap = 0) {
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    const std::int64_t gap = i > 5 ? past_gap : own_gap;
    if (!x.defined() || gap == 0 || x.rank() == 1) {
      result.push_back(x.defined() ? to_gpu(raw::cast(x, Dtype::f32)) : x);
      continue;
    }
    Shape wide = x.shape();
    wide[x.rank() - 1] += gap;
    result.push_back(raw::narrow(
        Tensor::full(wide, std::numeric_limits<double>::quiet_NaN(), Dtype::f32, gpu()), -1, gap, x.dim(-1)));
    raw::copy_into(result.back(), to_gpu(raw::cast(x, Dtype::f32)));
  }
  return result;
}

// Returns the warnings of the calls.
std::vector<std::string> check_tf32(const AttentionCase& given) {
  const AttentionCase c = in_tf32(given);
  const Tensors inputs = operands_of(attention_inputs(c, Dtype::f32));
  const Tensor dy = tf32_of(attention_cotangent(c, Dtype::f32)), gpu_dy = to_gpu(raw::cast(dy, Dtype::f32));
  const Tensors want = expected_attention(c, inputs, dy);
  check_attention_at_gaps(c, 4, inputs, want, kTf32Roundings, [&](std::int64_t own, std::int64_t past) {
    return run_attention(attention_bthd, c, tf32_on_gpu(inputs, own, past), gpu_dy);
  });
  return take_warnings();
}

// Checks cases, of which those with positions and large heads alone are left to the plain kernels.
template <class Cases>
void check_tf32_of(const Cases& cases) {
  set_gpu_kernels("tf32_attention=mma");
  for (const AttentionCase& c : cases) {
    const bool left = c.positions && c.head_size > 64;
    CHECK_MESSAGE(check_tf32(c).empty() == !left, c.text());
    reset_warnings();
  }
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("attention on the GPU equals plain loops in result and every gradient and repeats its bits") {
    for (const AttentionCase& c : all_cases()) {
      if (kEmulated && c.queries > 200) continue;
      const Tensors inputs = attention_inputs(c, Dtype::f32);
      const Tensor dy = attention_cotangent(c, Dtype::f32);
      const Tensors want = expected_attention(c, inputs, dy);
      for (const bool strided : {false, true}) {
        Tensors on_gpu;
        for (const Tensor& x : inputs) {
          const Tensor typed = x.defined() ? raw::cast(x, Dtype::f32) : x;
          on_gpu.push_back(!x.defined() ? x : strided ? strided_on_gpu(typed) : to_gpu(typed));
        }
        const Tensor gpu_dy = to_gpu(raw::cast(dy, Dtype::f32));
        const Tensors got = to_cpu(run_attention(attention_bthd, c, on_gpu, gpu_dy));
        poison_gpu();
        const Tensors again = to_cpu(run_attention(attention_bthd, c, on_gpu, gpu_dy));
        const std::string where = c.text() + (strided ? ", strided" : "");
        check_attention(c, where, got, inputs, want, kRoundings);
        check_attention_bits(where, again, got);
      }
    }
  }

  TEST_CASE("attention on the GPU keeps its bounds whatever dropout leaves out") {
    const AttentionCase c{1, 19, 35, 2, 1, 24, 0, 20, true, true, true, true};
    const Tensors inputs = attention_inputs(c, Dtype::f32);
    const Tensor dy = attention_cotangent(c, Dtype::f32);
    Tensors on_gpu;
    for (const Tensor& x : inputs) on_gpu.push_back(x.defined() ? to_gpu(raw::cast(x, Dtype::f32)) : x);
    for (std::uint64_t mask = 0; mask < 8; ++mask) {
      const Tensors want = expected_attention(c, inputs, dy, mask);
      const Tensors got =
          to_cpu(run_attention(attention_bthd, c, on_gpu, to_gpu(raw::cast(dy, Dtype::f32)), mask));
      check_attention(c, fmt::format("mask {}", mask), got, inputs, want, kRoundings);
    }
  }

  TEST_CASE("a NaN or an infinity in a query on the GPU reaches its own row of the result") {
    for (const float bad : {NAN, INFINITY}) {
      const Tensor q = raw::cast(sample_normal({1, 70, 1, 16}, "q"), Dtype::f32);
      const Tensor k = to_gpu(raw::cast(sample_normal({1, 70, 1, 16}, "k"), Dtype::f32));
      q.mutable_data<float>()[5 * 16] = bad;
      const Tensor y = to_cpu(attention_bthd(to_gpu(q), k, k));
      for (std::int64_t row = 0; row < 70; ++row) CHECK(std::isnan(y.data<float>()[row * 16]) == (row == 5));
    }
  }

  // The scores of bf16 take the kernels on tensor cores, of heads of 64 those by wgmma where there are some.
  TEST_CASE("over one visible key attention on the GPU has gradients of exactly 0 for queries and keys") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const AttentionCase& c : {AttentionCase{2, 1, 1, 2, 2, 64, 0, kFar, false, false, false, false},
                                     {1, 70, 70, 2, 1, 64, 0, 0, true, true, true, true},
                                     {1, 20, 20, 2, 2, 32, 0, 0, false, false, false, true}}) {
        Tensors on_gpu;
        for (const Tensor& x : attention_inputs(c, dtype))
          on_gpu.push_back(x.defined() ? to_gpu(raw::cast(x, x.rank() == 4 ? dtype : Dtype::f32)) : x);
        const Tensor dy = to_gpu(raw::cast(attention_cotangent(c, dtype), dtype));
        const Tensors got = to_cpu(run_attention(attention_bthd, c, on_gpu, dy));
        for (std::size_t i = 1; i < got.size(); ++i) {  // the result comes first
          if (i == 3 || !got[i].defined()) continue;    // of v
          for (const double gradient : raw::cast(got[i], Dtype::f64).to_vector<double>())
            CHECK(gradient == 0);
        }
      }
  }

  TEST_CASE("a head too large for the kernels of the GPU is refused") {
    const Tensor x = Tensor::zeros({1, 2, 1, 257}, Dtype::f32, gpu());
    CHECK_THROWS_AS(attention_bthd(x, x, x), ShapeError);
  }

  TEST_CASE("attention in tf32 equals plain loops in result and every gradient and repeats its bits") {
    check_tf32_of(kTensorCoreCases);
    check_tf32_of(kLongCases);
    check_tf32_of(kSmallHeads);
    if (!kEmulated) check_tf32_of(kLargeCases);
  }

  TEST_CASE("attention in tf32 to keys in two places equals plain loops and repeats its bits") {
    check_tf32_of(kPastCases);
  }

  TEST_CASE("attention in tf32 that makes unit vectors equals plain loops and repeats its bits") {
    check_tf32_of(kUnitCases);
  }

  TEST_CASE("attention in tf32 sums the gradient of a bias with the queries and equals plain loops") {
    check_tf32_of(kBiasCases);
  }

  TEST_CASE("attention in tf32 takes any f32 as if it were rounded before, and errs as TF32 may") {
    set_gpu_kernels("tf32_attention=mma");
    for (const AttentionCase& given :
         {AttentionCase{1, 70, 131, 2, 1, 64, 0, kFar, false, true, true, true},
          {1, 40, 70, 1, 1, 128, 0, 50, true, false, false, false},
          {2, 33, 66, 2, 2, 16, 0, kFar, false, false, true, false, kAllWanted, 33}}) {
      const AttentionCase c = in_tf32(given);
      const Tensors inputs = attention_inputs(c, Dtype::f32), rounded = operands_of(inputs);
      const Tensor dy = attention_cotangent(c, Dtype::f32), rounded_dy = tf32_of(dy);
      const Tensors got =
          to_cpu(run_attention(attention_bthd, c, tf32_on_gpu(inputs), to_gpu(raw::cast(dy, Dtype::f32))));
      const Tensors same = to_cpu(
          run_attention(attention_bthd, c, tf32_on_gpu(rounded), to_gpu(raw::cast(rounded_dy, Dtype::f32))));
      for (const std::size_t i : {0, 3, 8})  // the result and dv of both places read no delta
        if (got[i].defined()) expect_none(bit_difference(attention_part(i, c.text()), got[i], same[i]));
      check_attention(c, c.text(), got, rounded, expected_attention(c, rounded, rounded_dy), kTf32Roundings);
      // Against the numbers as they are: a raw score is off by 2 u sum |q k|, without positions; a probability by the
      // factor of twice a score's error; the result by that and the roundings of probabilities and values.
      if (c.positions) continue;
      const std::vector<double> q = numbers(inputs[0]), k = numbers(inputs[1]);
      const auto size = static_cast<std::size_t>(c.head_size);
      double most = 0, scale = 0;
      for (std::size_t j = 0; j < q.size(); j += size)
        for (std::size_t t = 0; t < k.size(); t += size) {
          double sum = 0;
          for (std::size_t e = 0; e < size; ++e) sum += std::abs(q[j + e] * k[t + e]);
          most = std::max(most, sum);
        }
      for (const double factor : numbers(inputs[3])) scale = std::max(scale, std::abs(0.37 * factor));
      expect_none(difference(c.text(), got[0], expected_attention(c, inputs, dy)[0], 4 * scale * most + 4,
                             kTf32Rounding));
    }
  }

  // A coarser precision takes TF32 too, as products by cuBLASLt do.
  TEST_CASE("attention in f32 takes tensor cores where the precision and the choice of kernels say so") {
    std::size_t warnings = 0;
    const auto result = [&](MatmulPrecision precision, const char* kernels, std::int64_t head_size = 64) {
      const Tensor x = to_gpu(raw::cast(sample_normal({1, 70, 1, head_size}, "x"), Dtype::f32));
      set_gpu_kernels(kernels);
      AttentionOptions options;
      options.precision = precision;
      const Tensor y = to_cpu(attention_bthd(x, x, x, options));
      warnings += take_warnings().size();
      set_gpu_kernels("auto");
      return y;
    };
    const Tensor plain = result(MatmulPrecision::f32, "plain"),
                 tf32 = result(MatmulPrecision::tf32, "tf32_attention=mma");
    CHECK_FALSE(bit_difference("y", tf32, plain).empty());
    expect_none(bit_difference("y", result(MatmulPrecision::bf16, "tf32_attention=mma"), tf32));
    expect_none(bit_difference("y", result(MatmulPrecision::f32, "tf32_attention=mma"), plain));
    expect_none(bit_difference("y", result(MatmulPrecision::tf32, "plain"), plain));
    expect_none(bit_difference("y", result(MatmulPrecision::tf32, "auto"), plain));  // no GPU has timed it
    CHECK(warnings == 0);
    expect_none(bit_difference("y", result(MatmulPrecision::tf32, "tf32_attention=mma", 40),
                               result(MatmulPrecision::f32, "plain", 40)));
    CHECK(warnings == 1);
  }

  TEST_CASE("captured attention in tf32 with a bias and a past has the bits of the same uncaptured") {
    set_gpu_kernels("tf32_attention=mma");
    const AttentionCase c = in_tf32({2, 70, 131, 2, 1, 64, 1, 60, true, true, false, true, kNoPositions, 61});
    const Tensors inputs = tf32_on_gpu(attention_inputs(c, Dtype::f32));
    const Tensor dy = to_gpu(raw::cast(attention_cotangent(c, Dtype::f32), Dtype::f32));
    check_captured_attention("captured", c, inputs, dy);
  }

  TEST_CASE("over one visible key attention in tf32 has gradients of exactly 0 for queries and keys") {
    set_gpu_kernels("tf32_attention=mma");
    for (const AttentionCase& given : {AttentionCase{2, 1, 1, 2, 2, 64, 0, kFar, false, false, false, false},
                                       {1, 70, 70, 2, 1, 64, 0, 0, true, true, true, true}}) {
      const AttentionCase c = in_tf32(given);
      const Tensors got =
          to_cpu(run_attention(attention_bthd, c, tf32_on_gpu(attention_inputs(c, Dtype::f32)),
                               to_gpu(raw::cast(attention_cotangent(c, Dtype::f32), Dtype::f32))));
      for (const std::size_t i : {1, 2, 4, 5, 6}) {
        if (!got[i].defined()) continue;
        for (const double gradient : numbers(got[i])) CHECK(gradient == 0);
      }
    }
  }

  TEST_CASE("a NaN or an infinity in a query reaches its own row of the result in tf32") {
    set_gpu_kernels("tf32_attention=mma");
    for (const float bad : {NAN, INFINITY}) {
      const Tensor q = raw::cast(sample_normal({1, 70, 1, 32}, "q"), Dtype::f32);
      const Tensor k = to_gpu(raw::cast(sample_normal({1, 70, 1, 32}, "k"), Dtype::f32));
      q.mutable_data<float>()[5 * 32] = bad;
      AttentionOptions options;
      options.precision = MatmulPrecision::tf32;
      const std::vector<double> y = numbers(to_cpu(attention_bthd(to_gpu(q), k, k, options)));
      for (std::size_t row = 0; row < 70; ++row) CHECK(std::isnan(y[row * 32]) == (row == 5));
    }
  }
}
