// Samples and references of the ops in gates.h.
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrence/gates.h"

namespace eddy {
namespace {

// Inputs: c, z, bias, or c, z, i, f, bias_i, bias_f.
Tensor reference_gate(const Tensors& x, bool tanh_z) {
  const Tensor z = tanh_z ? tanh(x[1]) : x[1];
  if (x.size() == 6) return x[0] * sigmoid(x[3] + x[5] + 1) + z * sigmoid(x[2] + x[4] - 1);
  const Tensor gate = sigmoid(x[2]);
  return x[0] * gate + z * (1 - gate);
}

Tensors gate_sample(const Shape& shape, bool lstm, double scale = 1) {
  const Shape bias{shape.dim(-1)};
  if (!lstm)
    return {sample_normal(shape, "c", scale), sample_normal(shape, "z", scale), sample_normal(bias, "bias")};
  return {sample_normal(shape, "c", scale),  sample_normal(shape, "z", scale),
          sample_normal(shape, "i", scale),  sample_normal(shape, "f", scale),
          sample_normal(bias, "bias_i", .5), sample_normal(bias, "bias_f", .5)};
}

// Every operand a part of the last axis of something larger, as one product makes all of them.
Tensors sliced(const Tensors& inputs) {
  Tensors result = inputs;
  for (Tensor& x : result) {
    Shape wide = x.shape();
    wide[wide.rank() - 1] *= 3;
    const Tensor all = Tensor::zeros(wide, x.dtype());
    const Tensor part = raw::narrow(all, wide.rank() - 1, x.dim(-1), x.dim(-1));
    raw::copy_into(part, x);
    x = part;
  }
  return result;
}

OpSpec gate_spec(const char* name, const char* formula, bool lstm, bool tanh_z) {
  OpSpec spec{name, formula};
  spec.run = [lstm, tanh_z](const Tensors& x) {
    return lstm ? lstm_gate(x[0], x[1], x[2], x[3], x[4], x[5], tanh_z)
                : fixed_gate(x[0], x[1], x[2], tanh_z);
  };
  spec.reference = [tanh_z](const Tensors& x) { return reference_gate(x, tanh_z); };
  const auto sample = [lstm](const Shape& shape, double scale = 1) {
    return gate_sample(shape, lstm, scale);
  };
  spec.samples = {{"size_0", sample({3, 0})},
                  {"no_rows", sample({0, 5})},
                  {"size_1", sample({1})},
                  {"odd_tail", sample({3, 37})},
                  {"rank_3", sample({2, 3, 5})},
                  {"row_blocks", sample({2 * detail::kGateBlockRows + 3, 3}), false},
                  {"wide", sample({2, 300}), false},
                  {"strided", strided_copies(sample({5, 7}))},
                  {"part_of_last_axis", sliced(sample({2, 3, 5}))},
                  {"large", sample({3, 33}, 1e3), false}};
  spec.roundings = 64;  // the bias gradients add up to 131 terms
  spec.bench = [sample] { return sample({4096, 1024}); };
  return spec;
}

}  // namespace

std::vector<OpSpec> gates_specs() {
  return {
      gate_spec("fixed_gate", "c g + z (1 - g), g = sigmoid(bias)", false, false),
      gate_spec("fixed_gate_tanh", "fixed_gate with tanh z", false, true),
      gate_spec("lstm_gate", "c sigmoid(f + bias_f + 1) + z sigmoid(i + bias_i - 1)", true, false),
      gate_spec("lstm_gate_tanh", "lstm_gate with tanh z", true, true),
  };
}

}  // namespace eddy
