// One step of an LSTM after its matrix products (for the staircase paper's LSTM baseline):
//
//   c' = sigmoid(f) c + sigmoid(i) tanh(g)
//   h  = sigmoid(o) tanh(c')
//
// Named values (autograd/named_values.h): sigmoid of i, f and o as `input_gate`, `forget_gate` and `output_gate`,
// shaped like c.
//
// Source: Hochreiter, Schmidhuber, "Long short-term memory" (1997), with the forget gate of Gers,
// Schmidhuber, Cummins (2000).
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

namespace detail {
// The state of an LSTM.
struct LstmCell {
  Tensor h, c;  // hidden and cell, [batch, dim] each
};
}  // namespace detail

// Returns the next hidden and cell state. `gates` holds the gates before their nonlinearities, side by side
// in the order i, f, g, o.
// shapes: gates [batch, 4 hidden], c [batch, hidden] -> h and c, both [batch, hidden]. Size 0 gives empty
// results.
// dtypes: f32, f64, one for both. Rows may be slices, such as one time step.
// errors: ShapeError, DtypeError, DeviceError.
// grad: with i, f, g, o after their nonlinearities and t = tanh(c'):
//   dc' += dh o (1 - t^2)
//   do   = dh t o (1 - o)
//   di   = dc' g i (1 - i)
//   df   = dc' c f (1 - f)
//   dg   = dc' i (1 - g^2)
//   dc   = dc' f
detail::LstmCell lstm_cell(const Tensor& gates, const Tensor& c);

namespace detail {
// One step. h and c_next are row-major. batch >= 1, hidden >= 1.
struct LstmCellArgs {
  Dtype dtype;
  std::int64_t batch, hidden;
  const void* gates;
  std::int64_t gates_stride;  // elements from row to row
  const void* c;
  std::int64_t c_stride;
  void *h, *c_next;
};
extern Slot<LstmCellArgs> lstm_cell_forward_slot;

// The gradient of one step: dgates [batch, 4 hidden] and dc [batch, hidden], row-major, null if not needed.
// A null dh or dc_next stands for zeros.
struct LstmCellBackwardArgs {
  Dtype dtype;
  std::int64_t batch, hidden;
  const void* gates;
  std::int64_t gates_stride;
  const void* c;
  std::int64_t c_stride;
  const void* c_next;  // row-major
  const void* dh;
  std::int64_t dh_stride;
  const void* dc_next;
  std::int64_t dc_next_stride;
  void *dgates, *dc;
};
extern Slot<LstmCellBackwardArgs> lstm_cell_backward_slot;
}  // namespace detail

}  // namespace eddy
