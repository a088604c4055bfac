// Samples and references of the ops in softmax.h.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/reduce/softmax.h"

namespace eddy {
namespace {

// The reference in plain loops: visible(row, column) tells which entries count.
template <class Visible>
Tensor reference_softmax(const Tensor& x, bool logarithm, Visible visible) {
  const std::int64_t width = x.dim(-1), rows = width == 0 ? 0 : x.elements() / width;
  std::vector<double> values = x.to_vector<double>();
  for (std::int64_t r = 0; r < rows; ++r) {
    double* const row = values.data() + r * width;
    double top = -INFINITY, sum = 0;
    for (std::int64_t k = 0; k < width; ++k)
      if (visible(r, k)) top = std::max(top, row[k]);
    for (std::int64_t k = 0; k < width; ++k)
      if (visible(r, k)) sum += std::exp(row[k] - top);
    for (std::int64_t k = 0; k < width; ++k) {
      const double score = row[k] - top;
      row[k] = !visible(r, k) ? 0 : logarithm ? score - std::log(sum) : std::exp(score) / sum;
    }
  }
  return Tensor::from(values, x.shape());
}

bool all_visible(std::int64_t, std::int64_t) {
  return true;
}

Tensor values(const Shape& shape) {
  return sample_normal(shape, "softmax");
}

Tensor sample_mask(const Shape& shape) {
  const std::vector<std::int64_t> draws = sample_indices(shape, "softmax_mask", 3).to_vector<std::int64_t>();
  std::vector<std::uint8_t> allowed;
  for (const std::int64_t draw : draws) allowed.push_back(draw > 0);
  return Tensor::from(allowed, shape);
}

OpSpec softmax_spec(const char* name, const char* formula, OpFunction run, OpFunction reference) {
  OpSpec spec{name, formula};
  spec.run = std::move(run);
  spec.reference = std::move(reference);
  spec.samples = {{"size_0", {values({3, 0})}},
                  {"no_rows", {values({0, 5})}},
                  {"size_1", {values({1, 1})}},
                  {"odd_tail", {values({3, 37})}},
                  {"long_row", {values({2, 1029})}, false},
                  {"strided", {strided_copy(values({5, 7}))}},
                  {"large", {sample_normal({3, 33}, "softmax", 1e4)}, false}};
  spec.roundings = 32;
  spec.bench = [] { return values({16384, 256}); };
  return spec;
}

// Whether the reference sees a key, from its distance alone.
bool in_band(const Tensor& x, std::int64_t row, std::int64_t key, std::int64_t least, std::int64_t most) {
  const std::int64_t queries = x.dim(-2), keys = x.dim(-1);
  const std::int64_t distance = row % queries + (keys - queries) - key;
  return distance >= least && distance <= most;
}

OpSpec banded_spec(const char* name, const char* formula, const SoftmaxOptions& options, std::int64_t least,
                   std::int64_t most) {
  OpSpec spec = softmax_spec(
      name, formula, [options](const Tensors& x) { return softmax(x[0], options); },
      [least, most](const Tensors& x) {
        return reference_softmax(x[0], false, [&](std::int64_t row, std::int64_t key) {
          return in_band(x[0], row, key, least, most);
        });
      });
  // With more queries than keys, some rows see nothing.
  spec.samples = {{"size_0", {values({2, 0, 3})}},       {"size_1", {values({1, 1})}},
                  {"square", {values({2, 9, 9})}},       {"more_keys", {values({2, 3, 21})}},
                  {"more_queries", {values({2, 5, 3})}}, {"strided", {strided_copy(values({2, 5, 5}))}}};
  spec.bench = [] { return values({64, 256, 256}); };
  return spec;
}

OpSpec masked_spec() {
  OpSpec spec = softmax_spec(
      "softmax_masked", "softmax over the entries that the mask allows",
      [](const Tensors& x) { return softmax(x[0], {.mask = x[1]}); },
      [](const Tensors& x) {
        const std::vector<std::uint8_t> mask = raw::expand(x[1], x[0].shape()).to_vector<std::uint8_t>();
        const std::int64_t width = x[0].dim(-1);
        return reference_softmax(x[0], false, [&](std::int64_t row, std::int64_t key) {
          return mask[static_cast<std::size_t>(row * width + key)] != 0;
        });
      });
  spec.samples = {{"size_0", {values({0, 3}), sample_mask({3})}},
                  {"size_1", {values({1, 1}), sample_mask({1, 1})}},
                  {"full_mask", {values({2, 3, 37}), sample_mask({2, 3, 37})}},
                  {"broadcast_rows", {values({2, 3, 9}), sample_mask({9})}},
                  {"broadcast_heads", {values({2, 3, 4, 9}), sample_mask({2, 1, 4, 9})}},
                  {"whole_rows", {values({2, 5, 9}), sample_mask({5, 1})}},
                  {"strided", {strided_copy(values({5, 7})), strided_copy(sample_mask({5, 7}))}}};
  spec.bench = [] { return Tensors{values({64, 256, 256}), sample_mask({256, 256})}; };
  return spec;
}

OpSpec biased_spec() {
  OpSpec spec = softmax_spec(
      "softmax_bias", "softmax of x + bias, the bias repeated over leading axes",
      [](const Tensors& x) { return softmax(x[0], {.bias = x[1]}); },
      [](const Tensors& x) {
        std::vector<double> sums = x[0].to_vector<double>();
        const std::vector<double> bias = raw::expand(x[1], x[0].shape()).to_vector<double>();
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += bias[i];
        return reference_softmax(Tensor::from(sums, x[0].shape()), false, all_visible);
      });
  const auto bias = [](const Shape& shape) { return sample_normal(shape, "softmax_bias"); };
  spec.samples = {{"size_0", {values({0, 3}), bias({3})}},
                  {"no_keys", {values({2, 0}), bias({1, 1})}},
                  {"size_1", {values({1, 1}), bias({1, 1})}},
                  {"full_bias", {values({2, 3, 37}), bias({2, 3, 37})}},
                  {"one_row", {values({2, 3, 9}), bias({9})}},
                  {"broadcast_batch", {values({2, 3, 4, 9}), bias({3, 4, 9})}},
                  {"broadcast_heads", {values({2, 3, 4, 9}), bias({2, 1, 4, 9})}},
                  {"long_row", {values({2, 1029}), bias({1029})}, false},
                  {"strided", {strided_copy(values({5, 7})), strided_copy(bias({5, 7}))}}};
  spec.bench = [] { return Tensors{values({64, 256, 256}), sample_normal({256, 256}, "softmax_bias")}; };
  return spec;
}

}  // namespace

std::vector<OpSpec> softmax_specs() {
  return {
      softmax_spec(
          "softmax", "exp(x) / sum exp(x), last axis", [](const Tensors& x) { return softmax(x[0]); },
          [](const Tensors& x) { return reference_softmax(x[0], false, all_visible); }),
      banded_spec("softmax_causal", "softmax over the keys k <= j + (keys - queries)", {.causal = true}, 0,
                  AttentionBand::kFar),
      banded_spec("softmax_band", "softmax over the keys at distances j + (keys - queries) - k of 1 .. 4",
                  {.band = {1, 4}}, 1, 4),
      masked_spec(),
      biased_spec(),
      softmax_spec(
          "log_softmax", "x - log(sum exp(x)), last axis", [](const Tensors& x) { return log_softmax(x[0]); },
          [](const Tensors& x) { return reference_softmax(x[0], true, all_visible); }),
  };
}

}  // namespace eddy
