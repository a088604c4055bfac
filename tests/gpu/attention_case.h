// What the tests of the GPU's attention share: a case, its inputs, a run with every gradient, and the check
// of both against plain loops in f64.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "gpu_test.h"
#include "ops/attention.h"
#include "tests/op/spec_check.h"

namespace eddy::gpu_test {

constexpr std::int64_t kFar = AttentionBand::kFar;

struct AttentionCase {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
  std::int64_t least, most;
  bool head_scale, bias, positions, dropout;
  // Of q, k, v, head_scale, bias and positions, by bits.
  unsigned wanted = 63;

  std::string text() const {
    return fmt::format("queries {}, keys {}, heads {}/{}, head_size {}, band {} .. {}", queries, keys, heads,
                       kv_heads, head_size, least, most);
  }
};

using Attention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

// The result, then the gradients that the case wants, undefined for the others. `mask` numbers the dropout.
inline Tensors run_attention(Attention function, const AttentionCase& c, const Tensors& inputs,
                             const Tensor& dy, std::uint64_t mask = 7) {
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
    options.dropout_key = random_key(3, "attention_case", mask);
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
inline Tensor rounded_normal(const Shape& shape, const char* stream, Dtype dtype, double deviation = 1) {
  return raw::cast(raw::cast(sample_normal(shape, stream, deviation), dtype), Dtype::f64);
}

// q, k, v, head_scale, bias and positions in f64, as numbers of `dtype`; head_scale and bias of f32.
inline Tensors attention_inputs(const AttentionCase& c, Dtype dtype) {
  const std::int64_t distances = std::max<std::int64_t>(std::min(c.most, c.keys - 1) + 1, 0) + 3;
  const Shape keys{c.batch, c.keys, c.kv_heads, c.head_size};
  return {rounded_normal({c.batch, c.queries, c.heads, c.head_size}, "q", dtype),
          rounded_normal(keys, "k", dtype),
          rounded_normal(keys, "v", dtype),
          c.head_scale ? rounded_normal({c.heads}, "head_scale", Dtype::f32) : Tensor(),
          c.bias ? rounded_normal({c.heads, distances}, "bias", Dtype::f32) : Tensor(),
          c.positions ? rounded_normal({distances, c.head_size}, "positions", dtype, 0.3) : Tensor()};
}
inline Tensor attention_cotangent(const AttentionCase& c, Dtype dtype) {
  return rounded_normal({c.batch, c.queries, c.heads, c.head_size}, "dy", dtype);
}

// The result and all gradients by plain loops in f64, whatever the case wants: they tell the sizes of terms.
inline Tensors expected_attention(const AttentionCase& c, const Tensors& inputs, const Tensor& dy,
                                  std::uint64_t mask = 7) {
  AttentionCase all = c;
  all.wanted = 63;
  return run_attention(attention_composed, all, inputs, dy, mask);
}

inline std::vector<double> numbers(const Tensor& x) {
  return raw::cast(x, Dtype::f64).to_vector<double>();
}

// How many roundings of which size parts may be off by. `head_scale` counts in units of its terms.
struct AttentionRoundings {
  double result, gradient, head_scale, eps;
};

// "" or what is wrong with the gradient of head_scale. It is one number to a head, with terms of both signs,
// so that it is held to the sum of their sizes. (A head's scale scales its scores as q does, and its bias.)
inline std::string head_scale_difference(const std::string& what, const Tensor& got, const Tensors& inputs,
                                         const Tensors& want, const AttentionRoundings& allowed) {
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
    if (!(std::abs(a[h] - b[h]) <= allowed.head_scale * allowed.eps * largest))
      return fmt::format("{}: head {}: {} and should be {}: more than {} x {} x {}", what, h, a[h], b[h],
                         allowed.head_scale, allowed.eps, largest);
  return "";
}

inline std::string attention_part(std::size_t i, const std::string& where) {
  const char* const names[] = {"y", "dq", "dk", "dv", "dhead_scale", "dbias", "dpositions"};
  return std::string(names[i]) + " at " + where;
}

// Checks what run_attention gave against expected_attention.
inline void check_attention(const AttentionCase& c, const std::string& where, const Tensors& got,
                            const Tensors& inputs, const Tensors& want, const AttentionRoundings& allowed) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::string what = attention_part(i, where);
    if (i > 0 && (c.wanted >> (i - 1) & 1u) == 0) {
      CHECK_MESSAGE(!got[i].defined(), what);
      continue;
    }
    const std::string text =
        i == 4 ? head_scale_difference(what, got[i], inputs, want, allowed)
               : spec_check::difference(what, got[i], want[i], i == 0 ? allowed.result : allowed.gradient,
                                        allowed.eps);
    CHECK_MESSAGE(text.empty(), text);
  }
}

inline void check_attention_bits(const std::string& where, const Tensors& got, const Tensors& want) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!want[i].defined()) continue;
    const std::string bits = spec_check::bit_difference(attention_part(i, where), got[i], want[i]);
    CHECK_MESSAGE(bits.empty(), bits);
  }
}

}  // namespace eddy::gpu_test
