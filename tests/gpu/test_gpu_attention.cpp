// Attention on the GPU at sizes that cross its tiles, with every table and its gradient, against plain loops
// in f64. The samples of the ops' records are smaller than a tile.
#include <doctest/doctest.h>

#include <cmath>

#include "tensor/base/error.h"
#include "tests/gpu/support/attention_case.h"

using namespace eddy;
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
}
