// Samples and references of the ops in layer_norm.h and rms_norm.h.
#include "ops/core/op_spec.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

namespace eddy {
namespace {

constexpr double kEps = 1e-5;
// One element of the size of sqrt(eps): with a larger one dx of an RMS norm is only what rounding leaves of
// g - g.
constexpr double kNearEps = 3e-3;

// Inputs: x, and the weight and the bias if there are; an RMS norm has no mean.
Tensor reference_norm(const Tensors& inputs, bool centred) {
  if (inputs[0].elements() == 0) return inputs[0];
  const Tensor x = centred ? inputs[0] - mean(inputs[0], -1, true) : inputs[0];
  Tensor y = x / sqrt(mean(x * x, -1, true) + kEps);
  if (inputs.size() > 1) y *= inputs[1];
  if (inputs.size() > 2) y += inputs[2];
  return y;
}

// x, weight and, for a layer norm, bias.
Tensors sample(bool centred, const Shape& shape, double scale = 1) {
  Tensors inputs{sample_normal(shape, "x", scale), sample_normal({shape.dim(-1)}, "weight")};
  if (centred) inputs.push_back(sample_normal({shape.dim(-1)}, "bias"));
  return inputs;
}

OpSpec norm_spec(const char* name, const char* formula, OpFunction run, bool centred) {
  OpSpec spec{name, formula, std::move(run),
              [centred](const Tensors& x) { return reference_norm(x, centred); }};
  const Tensors dense = sample(centred, {5, 7});
  Tensors time_step = sample(centred, {9});
  time_step[0] = raw::select(sample_normal({3, 4, 9}, "x"), 1, 2);
  spec.samples = {{"size_0", sample(centred, {3, 0})},
                  {"no_rows", sample(centred, {0, 5})},
                  {"size_1", sample(centred, {2, 1}, centred ? 1 : kNearEps)},
                  {"odd_tail", sample(centred, {3, 37})},
                  {"many_rows", sample(centred, {131, 3}), false},
                  {"rank_3", sample(centred, {2, 3, 9})},
                  {"no_weight", {dense[0]}},
                  {"strided", strided_copies(dense)},
                  {"time_step", time_step},
                  {"large", sample(centred, {3, 65}, 1e4), false}};
  if (centred) spec.samples.push_back({"no_bias", {dense[0], dense[1]}});
  spec.roundings = centred ? 64 : 32;  // two sums over the row, and n is a difference
  spec.bench = [centred] { return sample(centred, {4096, 384}); };
  return spec;
}

// The same of x + delta; `norm` is that of x.
OpSpec sum_spec(const char* name, const char* formula, OpFunction run, const OpSpec& norm) {
  OpSpec spec = norm;
  spec.name = name;
  spec.formula = formula;
  spec.run = std::move(run);
  spec.reference = [reference = norm.reference](const Tensors& x) {
    Tensors inputs{x[0] + x[1]};
    inputs.insert(inputs.end(), x.begin() + 2, x.end());
    return Tensors{inputs[0], reference(inputs)[0]};
  };
  for (OpSample& one : spec.samples) {
    const Tensor& x = one.inputs[0];
    const Tensor delta = sample_normal(x.shape(), "delta", one.label == "size_1" ? kNearEps : 0.5);
    one.inputs.insert(one.inputs.begin() + 1, x.contiguous() ? delta : strided_copy(delta));
  }
  spec.bench = [bench = norm.bench] {
    Tensors inputs = bench();
    inputs.insert(inputs.begin() + 1, raw::copy(inputs[0]));
    return inputs;
  };
  return spec;
}

OpSpec table_spec() {
  OpSpec spec{"rms_norm_add", "x / sqrt(mean(x^2) + eps) weight + table, last axes"};
  spec.run = [](const Tensors& x) { return rms_norm_add(x[0], x[1], x[2], kEps); };
  spec.reference = [](const Tensors& x) { return reference_norm({x[0], x[1]}, false) + x[2]; };
  const auto with_table = [](const Shape& shape, const Shape& table, double scale = 1) {
    Tensors inputs = sample(false, shape, scale);
    inputs.push_back(sample_normal(table, "table"));
    return inputs;
  };
  const Tensors rows = with_table({2, 5, 7}, {5, 7});
  spec.samples = {{"size_0", with_table({3, 0}, {3, 0})},
                  {"no_rows", with_table({0, 4, 5}, {4, 5})},
                  {"size_1", with_table({2, 1}, {1}, kNearEps)},
                  {"odd_tail", with_table({3, 37}, {3, 37})},
                  {"repeated", rows},
                  {"many_rows", with_table({131, 3}, {3}), false},
                  {"strided", strided_copies(rows)},
                  {"large", with_table({3, 2, 65}, {2, 65}, 1e4), false}};
  spec.roundings = 32;
  spec.bench = [with_table] { return with_table({8, 512, 384}, {512, 384}); };
  return spec;
}

}  // namespace

std::vector<OpSpec> layer_norm_specs() {
  const OpSpec spec = norm_spec(
      "layer_norm", "(x - mean) / sqrt(variance + eps) weight + bias, last axis",
      [](const Tensors& x) { return layer_norm(x[0], optional_input(x, 1), optional_input(x, 2), kEps); },
      true);
  const auto run = [](const Tensors& x) {
    const SumAndNorm y = add_layer_norm(x[0], x[1], optional_input(x, 2), optional_input(x, 3), kEps);
    return Tensors{y.sum, y.norm};
  };
  return {spec,
          sum_spec("add_layer_norm",
                   "s = x + d and (s - mean) / sqrt(variance + eps) weight + bias, last axis", run, spec)};
}

std::vector<OpSpec> rms_norm_specs() {
  const OpSpec spec = norm_spec(
      "rms_norm", "x / sqrt(mean(x^2) + eps) weight, last axis",
      [](const Tensors& x) { return rms_norm(x[0], optional_input(x, 1), kEps); }, false);
  const auto run = [](const Tensors& x) {
    const SumAndNorm y = add_rms_norm(x[0], x[1], optional_input(x, 2), kEps);
    return Tensors{y.sum, y.norm};
  };
  return {spec,
          sum_spec("add_rms_norm", "s = x + d and s / sqrt(mean(s^2) + eps) weight, last axis", run, spec),
          table_spec()};
}

}  // namespace eddy
