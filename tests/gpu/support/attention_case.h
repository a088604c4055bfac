// What the tests of the GPU's attention share: a case, its inputs, a run with every gradient, and the check
// of both against attention_bthd_composed in f64.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/core/capture.h"
#include "ops/views/views.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

namespace eddy::gpu_test {

constexpr std::int64_t kFar = AttentionBand::kFar;

// Of q, k, v, head_scale, bias, positions and the past's keys and values, by bits: which gradients a case
// wants.
constexpr unsigned kAllWanted = 255, kPastUnwanted = 63;

struct AttentionCase {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
  std::int64_t least, most;
  bool head_scale, bias, positions, dropout;
  unsigned wanted = kAllWanted;
  std::int64_t past = 0;  // so many of the keys lie in a place of their own
  double unit_eps = 0;    // if positive, attention makes unit vectors of q and of its own keys
  MatmulPrecision precision = MatmulPrecision::f32;

  std::string text() const {
    return fmt::format("queries {}, keys {} ({} past), heads {}/{}, head_size {}, band {} .. {}{}", queries,
                       keys, past, heads, kv_heads, head_size, least, most, unit_eps > 0 ? ", unit" : "");
  }
};

// With a past, for all kernels: shorter and longer than tiles, cut by the band, without own keys, with
// gradients of one place alone.
constexpr AttentionCase kPastCases[] = {
    {1, 5, 6, 1, 1, 32, -kFar, kFar, false, false, false, false, kAllWanted, 1},
    {2, 33, 66, 4, 2, 48, 0, kFar, true, true, true, true, kAllWanted, 33},
    {1, 65, 130, 2, 1, 64, 1, 65, true, true, false, false, kAllWanted, 65},
    {1, 70, 201, 1, 1, 64, 1, 37, false, false, true, false, kAllWanted, 131},
    {1, 20, 150, 2, 1, 128, 0, 60, true, true, true, true, kAllWanted, 130},
    {1, 30, 100, 1, 1, 32, -kFar, kFar, false, false, false, true, kAllWanted, 40},  // a prefix of own keys
    {2, 9, 20, 1, 1, 32, -kFar, kFar, true, false, false, false, kAllWanted, 20},    // no own keys
    {1, 140, 330, 1, 1, 64, 0, 100, false, true, false, false, kAllWanted, 190},
    {1, 130, 260, 2, 1, 128, 1, 130, true, true, false, true, kPastUnwanted, 130},
    {2, 70, 198, 2, 2, 32, 0, kFar, false, false, false, false, kPastUnwanted, 128},
    {1, 40, 90, 2, 2, 32, 0, kFar, true, true, true, false, 1, 50},
    {1, 40, 90, 2, 2, 32, 0, kFar, true, true, true, false, 2, 50},
    {1, 40, 90, 2, 2, 32, 0, kFar, true, true, true, false, 64, 50},
    {1, 40, 90, 2, 2, 32, 0, kFar, true, true, true, false, 128, 50},
    {1, 40, 170, 2, 2, 32, 0, kFar, false, false, false, true, 192, 130},
};

// For the kernels on tensor cores, and what is compared with them: tails of tiles, bands, every table and gradient.
constexpr AttentionCase kTensorCoreCases[] = {
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
constexpr AttentionCase kLongCases[] = {
    {1, 140, 330, 1, 1, 64, 0, 100, false, true, false, false},
    {1, 192, 192, 1, 1, 128, 0, kFar, false, false, false, false},
    {1, 130, 260, 2, 1, 32, 1, 130, true, true, true, false},
};
// Heads of 16, which go as heads of 32 filled with zeros: every table, the sum of a bias by the kernels for dq, a past,
// unit vectors.
constexpr AttentionCase kSmallHeads[] = {
    {1, 5, 7, 2, 1, 16, -kFar, kFar, true, false, false, true},
    {1, 65, 130, 1, 1, 16, 0, 40, true, true, true, true},
    {1, 67, 67, 2, 2, 16, 0, kFar, false, true, false, false, kAllWanted - 32},
    {2, 33, 66, 4, 2, 16, 0, kFar, true, true, true, true, kAllWanted, 33, 0.01},
};
constexpr AttentionCase kLargeCases[] = {
    {2, 512, 1024, 8, 2, 64, 0, 512, true, true, true, true},
    {2, 1024, 1024, 4, 4, 128, 0, kFar, false, false, false, false},
};

// Bias without a gradient of positions, which the kernels for dq sum themselves; in the last two, positions are
// read alone.
constexpr unsigned kNoPositions = kAllWanted - 32, kBiasAlone = 16;
constexpr AttentionCase kBiasCases[] = {
    {2, 100, 228, 2, 1, 64, 1, 90, true, true, false, true, kNoPositions},  // a cached block, grouped heads
    {1, 67, 67, 2, 2, 32, 0, kFar, false, true, false, false, kNoPositions},
    {3, 70, 70, 1, 1, 128, 0, 20, true, true, false, true, kNoPositions},       // a band within one tile
    {1, 200, 130, 1, 1, 32, 0, kFar, false, true, false, false, kNoPositions},  // queries that see no key
    {1, 130, 300, 1, 1, 48, 150, 170, true, true, false, false, kNoPositions},  // keys that no query sees
    {1, 33, 200, 2, 1, 80, 40, 41, false, true, false, false, kNoPositions},    // two distances
    {70, 3, 4, 1, 1, 32, 0, kFar, true, true, false, true, kNoPositions},
    {1, 140, 330, 1, 1, 64, 5, 300, false, true, false, false, kNoPositions},
    {1, 70, 131, 2, 2, 64, 3, 60, true, true, true, true, kNoPositions},
    {1, 20, 90, 1, 1, 128, 3, 60, true, true, true, true, kNoPositions},
};

// Tails of heads and rows, grouped heads, a past that is taken as it is, gradients of one input alone.
constexpr double kUnitEps = 0.01;
constexpr AttentionCase kUnitCases[] = {
    {1, 1, 3, 2, 1, 32, -kFar, kFar, false, false, false, false, kAllWanted, 0, kUnitEps},
    {2, 33, 33, 4, 2, 48, 0, kFar, true, true, true, true, kAllWanted, 0, kUnitEps},
    {1, 70, 131, 2, 2, 64, 1, 60, true, true, false, false, kAllWanted, 61, kUnitEps},
    {1, 140, 140, 1, 1, 128, 0, 100, true, false, false, true, kAllWanted, 0, kUnitEps},
    {2, 20, 90, 2, 1, 112, 0, 60, false, true, false, false, kPastUnwanted, 70, kUnitEps},
    {1, 40, 40, 2, 2, 32, 0, kFar, true, true, false, false, 1, 0, kUnitEps},
    {1, 40, 90, 2, 1, 32, 0, kFar, true, true, false, false, 2, 50, kUnitEps},
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
  options.precision = c.precision;
  options.scale = 0.37;
  if (c.unit_eps > 0) {
    options.scale = 4;
    options.unit_eps = c.unit_eps;
  }
  if (c.dropout) {
    options.dropout = 0.3;
    options.dropout_key = random_key(3, "attention_case", mask);
  }
  options.head_scale = x[3];
  options.bias = x[4];
  options.positions = x[5];
  options.past_keys = x[6];
  options.past_values = x[7];
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

// q, k, v, head_scale, bias, positions and a past in f64, as numbers of `dtype`; head_scale and bias of f32.
inline Tensors attention_inputs(const AttentionCase& c, Dtype dtype) {
  const std::int64_t distances = std::max<std::int64_t>(std::min(c.most, c.keys - 1) + 1, 0) + 3;
  const Shape keys{c.batch, c.keys - c.past, c.kv_heads, c.head_size}, past = keys.with(1, c.past);
  return {rounded_normal({c.batch, c.queries, c.heads, c.head_size}, "q", dtype),
          rounded_normal(keys, "k", dtype),
          rounded_normal(keys, "v", dtype),
          c.head_scale ? rounded_normal({c.heads}, "head_scale", Dtype::f32) : Tensor(),
          c.bias ? rounded_normal({c.heads, distances}, "bias", Dtype::f32) : Tensor(),
          c.positions ? rounded_normal({distances, c.head_size}, "positions", dtype, 0.3) : Tensor(),
          c.past > 0 ? rounded_normal(past, "past k", dtype) : Tensor(),
          c.past > 0 ? rounded_normal(past, "past v", dtype) : Tensor()};
}
inline Tensor attention_cotangent(const AttentionCase& c, Dtype dtype) {
  return rounded_normal({c.batch, c.queries, c.heads, c.head_size}, "dy", dtype);
}

// The result and all gradients by attention_bthd_composed in f64, whatever the case wants: they tell the sizes of
// terms.
inline Tensors expected_attention(const AttentionCase& c, const Tensors& inputs, const Tensor& dy,
                                  std::uint64_t mask = 7) {
  AttentionCase all = c;
  all.wanted = kAllWanted;
  return run_attention(detail::attention_bthd_composed, all, inputs, dy, mask);
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
  const char* const names[] = {"y",     "dq",         "dk",      "dv",     "dhead_scale",
                               "dbias", "dpositions", "past dk", "past dv"};
  return std::string(names[i]) + " at " + where;
}

// Checks what run_attention gave against expected_attention.
inline void check_attention(const AttentionCase& c, const std::string& where, const Tensors& got,
                            const Tensors& inputs, const Tensors& want, const AttentionRoundings& allowed) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::string what = attention_part(i, where);
    if (i > 0 && !want[i].defined()) continue;
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

// The same keys and values in one place, and the case of it; with all gradients.
inline AttentionCase joined_case(AttentionCase c) {
  c.past = 0;
  c.wanted = kAllWanted;
  return c;
}
inline Tensors joined_inputs(Tensors inputs) {
  for (const std::size_t i : {1, 2}) inputs[i] = concat({inputs[i + 5], inputs[i]}, 1);
  inputs[6] = inputs[7] = Tensor();
  return inputs;
}
// The results of run_attention for it as those of a case with a past.
inline Tensors apart(Tensors results, std::int64_t past) {
  for (const std::size_t i : {2, 3}) {
    const Tensor all = results[i];
    results[i + 5] = raw::copy(raw::narrow(all, 1, 0, past));
    results[i] = raw::copy(raw::narrow(all, 1, past, all.dim(1) - past));
  }
  return results;
}

inline void check_attention_bits(const std::string& where, const Tensors& got, const Tensors& want) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!want[i].defined()) continue;
    spec_check::expect_none(spec_check::bit_difference(attention_part(i, where), got[i], want[i]));
  }
}

// Checks what run(own, past) gives on a GPU, with so many numbers between rows of the operands and of the past: twice
// side by side, then `aligned` with a stride, then not aligned. The same sums in the same order every time.
template <class Run>
void check_attention_at_gaps(const AttentionCase& c, std::int64_t aligned, const Tensors& inputs,
                             const Tensors& want, const AttentionRoundings& allowed, Run&& run) {
  Tensors first;
  struct Gaps {
    std::int64_t own, past;
  };
  for (const Gaps gap : {Gaps{0, 0}, {0, 0}, {aligned, aligned}, {1, 1}, {0, aligned}, {1, 0}, {0, 1}}) {
    if (gap.own != gap.past && c.past == 0) continue;
    if (kEmulated && gap.own == aligned) continue;  // the code of 0, and slow there
    poison_gpu();
    const Tensors got = to_cpu(run(gap.own, gap.past));
    const std::string where = fmt::format("{}, gaps {} and {}", c.text(), gap.own, gap.past);
    if (first.empty()) {
      check_attention(c, where, got, inputs, want, allowed);
      first = got;
    } else {
      check_attention_bits(where, got, first);
    }
  }
}

// Checks that captured calls give the bits of uncaptured ones, however often they run.
inline void check_captured_attention(const std::string& where, const AttentionCase& c, const Tensors& inputs,
                                     const Tensor& dy) {
  const Tensors want = to_cpu(run_attention(attention_bthd, c, inputs, dy));
  Tensors got;
  const auto work = capture(gpu(), [&] { got = run_attention(attention_bthd, c, inputs, dy); });
  for (int replay = 0; replay < 2; ++replay) {
    poison_gpu();
    work->replay();
    check_attention_bits(where, to_cpu(got), want);
  }
}

}  // namespace eddy::gpu_test
