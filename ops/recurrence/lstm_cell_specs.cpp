// Samples and references of the ops in lstm_cell.h.
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrence/lstm_cell.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

Tensors reference_cell(const Tensors& x) {
  const std::int64_t hidden = x[1].dim(1);
  const Tensors gates = split(x[0], 1, {hidden, hidden, hidden, hidden});  // i, f, g, o
  const Tensor c = sigmoid(gates[1]) * x[1] + sigmoid(gates[0]) * tanh(gates[2]);
  return {sigmoid(gates[3]) * tanh(c), c};
}

}  // namespace

std::vector<OpSpec> lstm_cell_specs() {
  OpSpec spec{"lstm_cell", "c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c')"};
  spec.run = [](const Tensors& x) {
    const detail::LstmCell next = lstm_cell(x[0], x[1]);
    return Tensors{next.h, next.c};
  };
  spec.reference = reference_cell;
  const auto sample = [](std::int64_t batch, std::int64_t hidden, double scale = 1) {
    return Tensors{sample_normal({batch, 4 * hidden}, "gates", scale),
                   sample_normal({batch, hidden}, "c", scale)};
  };
  spec.samples = {{"size_0", sample(0, 5)},
                  {"no_entries", sample(3, 0)},
                  {"size_1", sample(1, 1)},
                  {"odd_tail", sample(3, 37)},
                  {"many_rows", sample(600, 17), false},
                  {"wide", sample(2, 300), false},
                  {"strided", strided_copies(sample(5, 7))},
                  {"time_step",
                   {raw::select(sample_normal({3, 4, 20}, "gates"), 1, 2),
                    raw::select(sample_normal({3, 2, 5}, "c"), 1, 1)}},
                  {"large", sample(3, 33, 1e3), false}};
  spec.roundings = 32;
  spec.bench = [sample] { return sample(512, 512); };
  return {spec};
}

}  // namespace eddy
