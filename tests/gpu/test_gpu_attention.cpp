// Attention on the GPU at sizes that cross its tiles, with every table and its gradient, against plain loops
// in f64. The samples of the ops' records are smaller than a tile.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

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

struct Case {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
  std::int64_t least, most;
  bool head_scale, bias, positions, dropout;
  // Of q, k, v, head_scale, bias and positions, by bits.
  unsigned wanted = 63;
};
const Case kCases[] = {
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
    {2, 300, 520, 4, 2, 64, 0, 256, true, true, true, true},
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
    options.dropout_key = random_key(3, "test_gpu_attention", 7);
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

Tensors inputs_of(const Case& c) {
  const std::int64_t distances = std::max<std::int64_t>(std::min(c.most, c.keys - 1) + 1, 0) + 3;
  const Shape keys{c.batch, c.keys, c.kv_heads, c.head_size};
  return {sample_normal({c.batch, c.queries, c.heads, c.head_size}, "q"),
          sample_normal(keys, "k"),
          sample_normal(keys, "v"),
          c.head_scale ? sample_normal({c.heads}, "head_scale") : Tensor(),
          c.bias ? sample_normal({c.heads, distances}, "bias") : Tensor(),
          c.positions ? sample_normal({distances, c.head_size}, "positions", 0.3) : Tensor()};
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("attention on the GPU equals plain loops in result and every gradient and repeats its bits") {
    const char* const names[] = {"y", "dq", "dk", "dv", "dhead_scale", "dbias", "dpositions"};
    for (const Case& c : kCases) {
      if (kEmulated && c.queries > 200) continue;
      const Tensors inputs = inputs_of(c);
      const Tensor dy = sample_normal({c.batch, c.queries, c.heads, c.head_size}, "dy");
      const Tensors want = run(attention_composed, c, inputs, dy);
      for (const bool strided : {false, true}) {
        Tensors on_gpu;
        for (const Tensor& x : inputs) {
          const Tensor typed = x.defined() ? raw::cast(x, Dtype::f32) : x;
          on_gpu.push_back(!x.defined() ? x : strided ? strided_on_gpu(typed) : to_gpu(typed));
        }
        const Tensor gpu_dy = to_gpu(raw::cast(dy, Dtype::f32));
        const Tensors got = to_cpu(run(attention, c, on_gpu, gpu_dy));
        poison_gpu();
        const Tensors again = to_cpu(run(attention, c, on_gpu, gpu_dy));
        // As the ops' records: 64 roundings of a result, 4 times as many and 16 of a gradient.
        for (std::size_t i = 0; i < got.size(); ++i) {
          const std::string what = fmt::format(
              "{} at queries {}, keys {}, heads {}/{}, head_size {}, band {} .. {}{}", names[i], c.queries,
              c.keys, c.heads, c.kv_heads, c.head_size, c.least, c.most, strided ? ", strided" : "");
          const std::string text = difference(what, got[i], want[i], i == 0 ? 64 : 272, epsilon(Dtype::f32));
          CHECK_MESSAGE(text.empty(), text);
          const std::string bits = bit_difference(what, again[i], got[i]);
          CHECK_MESSAGE(bits.empty(), bits);
        }
      }
    }
  }

  TEST_CASE("a NaN or an infinity in a query on the GPU reaches its own row of the result") {
    for (const float bad : {NAN, INFINITY}) {
      const Tensor q = raw::cast(sample_normal({1, 70, 1, 16}, "q"), Dtype::f32);
      const Tensor k = to_gpu(raw::cast(sample_normal({1, 70, 1, 16}, "k"), Dtype::f32));
      q.data<float>()[5 * 16] = bad;
      const Tensor y = to_cpu(attention(to_gpu(q), k, k));
      for (std::int64_t row = 0; row < 70; ++row) CHECK(std::isnan(y.data<float>()[row * 16]) == (row == 5));
    }
  }

  TEST_CASE("a head too large for the kernels of the GPU is refused") {
    const Tensor x = Tensor::zeros({1, 2, 1, 257}, Dtype::f32, gpu());
    CHECK_THROWS_AS(attention(x, x, x), ShapeError);
  }
}
