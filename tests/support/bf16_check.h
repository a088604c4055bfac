// The samples of every op in bf16, and how far a result may be from f64.
#pragma once

#include <string_view>

#include "tests/support/spec_check.h"

namespace eddy::spec_check {

// How many of an op's first inputs are activations; the others are parameters, which stay f32 beside bf16.
// -1: the op computes on parameters alone.
inline int activations_of(std::string_view op) {
  struct Line {
    std::string_view prefix;
    int activations;
  };
  constexpr Line kLines[] = {{"layer_norm", 1},   {"rms_norm", 1},        {"add_layer_norm", 2},
                             {"add_rms_norm", 2}, {"linear_residual", 2}, {"linear_relu_residual", 2},
                             {"linear", 1},       {"attention_past", 5},  {"attention", 3},
                             {"fixed_gate", 2},   {"lstm_gate", 4},       {"unit_recurrence", 2},
                             {"adam", -1},        {"adafactor", -1},      {"l2_norm", -1},
                             {"sgd", -1},         {"lion", -1},           {"nesterov", -1},
                             {"given", -1},       {"embedding", 0},       {"softmax_bias", 1}};
  for (const Line& line : kLines)
    if (op.starts_with(line.prefix)) return line.activations;
  return 100;
}

// Whether an op is two in one pass, with the bits and the roundings of both.
inline bool rounds_twice(std::string_view op) {
  return op.starts_with("add_") || op.ends_with("_residual");
}

// The sample with all numbers rounded to bf16, as bf16 or, from input `activations` on, in a wider dtype.
inline Tensors inputs_in_bf16(const Tensors& inputs, int activations, Dtype beyond) {
  const Tensors rounded = inputs_as(inputs, Dtype::bf16);
  Tensors result = inputs_as(rounded, beyond);
  for (std::size_t i = 0; i < result.size() && static_cast<int>(i) < activations; ++i) result[i] = rounded[i];
  return result;
}

// Half the distance between neighbours at 1: what rounding to bf16 costs, relatively.
constexpr double kBf16Rounding = 0x1p-8;
// The roundings in f32 of an op as a part of one rounding to bf16, and the `last` roundings to bf16.
inline double bf16_roundings(double f32_roundings, double last = 1) {
  return last + f32_roundings * epsilon(Dtype::f32) / kBf16Rounding;
}

}  // namespace eddy::spec_check
