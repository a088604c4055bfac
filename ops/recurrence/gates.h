// Gates of the Block-Recurrent Transformer's cell (Hutchins et al.). They mix the old state c with a
// candidate z, element by element.
//
//   fixed:  c' = c g + z' (1 - g)      g = sigmoid(bias)
//   lstm:   c' = c F + z' I            F = sigmoid(f + bias_f + 1)
//                                      I = sigmoid(i + bias_i - 1)
//
// with z' = tanh z or z. The constants +1 and -1 make a new cell remember. They are not part of the biases,
// so that an optimizer whose steps scale with the size of a parameter does not see them. Named values
// (autograd/named_values.h): g as `gate` [width]; F and I as `forget_gate` and `input_gate`, shaped like c.
//
// Source: Hutchins et al., "Block-recurrent transformers" (2022), section 3.2, equations 2 to 6.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns the next state by the fixed gate.
// shapes: c and z [..., width] alike, bias [width] -> [..., width]; rank >= 1. Size 0 gives an empty result.
// dtypes: f32, f64, one for all. Operands may be slices along the last axis.
// errors: ShapeError, DtypeError, DeviceError.
// grad:
//   dc    = dy g
//   dz    = dy (1 - g) dz'/dz
//   dbias = sum over rows of dy (c - z') g (1 - g)
Tensor fixed_gate(const Tensor& c, const Tensor& z, const Tensor& bias, bool tanh_z);

// Returns the next state by the lstm gate. i and f are the products of the gate's input with its matrices.
// shapes: c, z, i and f [..., width] alike, bias_i and bias_f [width] -> [..., width]; rank >= 1. Size 0
// gives an empty result.
// dtypes: f32, f64, one for all. Operands may be slices along the last axis.
// errors: ShapeError, DtypeError, DeviceError.
// grad:
//   dc = dy F
//   dz = dy I dz'/dz
//   df = dy c F (1 - F)        dbias_f = sum of df over rows
//   di = dy z' I (1 - I)       dbias_i = sum of di over rows
Tensor lstm_gate(const Tensor& c, const Tensor& z, const Tensor& i, const Tensor& f, const Tensor& bias_i,
                 const Tensor& bias_f, bool tanh_z);

// The two gates.
enum class GateKind : std::uint8_t { fixed, lstm };

namespace detail {
// Rows that one partial sum of the bias gradients covers.
constexpr std::int64_t kGateBlockRows = 64;
constexpr std::int64_t gate_blocks(std::int64_t rows) {
  return (rows + kGateBlockRows - 1) / kGateBlockRows;
}

// Rows of an operand: row r starts at data + r * stride elements.
struct GateRows {
  const void* data;
  std::int64_t stride;
};

// One call of a gate. y is row-major. width >= 1, rows >= 1.
struct GateArgs {
  Dtype dtype;
  GateKind kind;
  bool tanh_z;
  std::int64_t rows, width;
  GateRows c, z;
  GateRows i, f;                // lstm only
  const void *bias_i, *bias_f;  // [width]; fixed: bias_f is its bias, bias_i null
  void* y;
};
extern Slot<GateArgs> gate_forward_slot;

// All gradients in one pass. They are row-major; a gradient is null if it is not needed.
struct GateBackwardArgs {
  Dtype dtype;
  GateArgs forward;  // as in the forward pass; y is not read
  GateRows dy;
  void *dc, *dz, *di, *df;
  // [gate_blocks(rows), width] of the dtype: the sums over each block of rows. fixed: dbias_f is the bias's.
  void *dbias_i_partials, *dbias_f_partials;
};
extern Slot<GateBackwardArgs> gate_backward_slot;
}  // namespace detail

}  // namespace eddy
