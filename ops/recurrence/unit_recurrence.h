// Unit recurrence with forget (Kausik's recurrent transformers), fused into one op: the sequential part of
// one layer, the loop over time. Time-major.
//
// Inputs: x_t, and q_t, kx_t, vx_t of LN1(x_t), computed by one product before the loop. For t = 1 .. n, per
// row and head, with kh, vh of the previous step:
//
//   g   = sigmoid(q (kh - kx) / sqrt(d))      softmax over two scores; 0 at t = 1 without a carried state
//   o   = vx + g (vh - vx)
//   r_t = x_t + o Wo^T
//   h_t = r_t + act(LN2(r_t) Wup^T) Wdown^T
//   kh  = LN1(h_t) Wk^T                       read by step t + 1, and by y_t = T(h_t) after the loop
//   vh  = LN1(h_t) Wv^T
//
// On the CPU, products use weights that are packed once for all steps. At 16 rows a plain sgemm packs its operands
// again at every step and reaches a third of the processor's rate. The backward runs the same recurrence with
// transposed weights; then each weight gradient is one product over all rows and steps.
//
// Cost per row and step, with D the width and M the MLP width:
//
//   multiply-adds, forward          D^2 (2 + 1 + 2 M/D), that is 11 D^2 at M = 4 D
//   multiply-adds, backward         as many again, and as many again for the weight gradients
//   saved for backward              x, q, kx, vx, kh, vh, o, r, a2, h, a1 (D each), u (M), g (heads) and four
//                                   norm statistics: in f32 at M = 4 D 60 D bytes, and the statistics
//   saved by a GPU                  the same, with o, a1, a2 and u in bf16 where products are bf16
//                                   (RecurrenceArgs::kept): 46 D bytes
//
// Source: Kausik, "Recurrent Transformers" (2025). The projections q, kx, vx can be computed before
// the loop because the first half of a window does not see the second.
#pragma once

#include "ops/recurrence/recurrence_args.h"

namespace eddy {

// Parameters of the layer, as TransformerLayer holds them; biases may be undefined.
// shapes: wqkv [3 D, D], rows of q, then k, then v; wo [D, D]; up [M, D]; down [D, M].
struct UnitRecurrenceWeights {
  Tensor norm1, norm1_bias, wqkv, wqkv_bias, wo, wo_bias;  // of attention
  Tensor norm2, norm2_bias, up, up_bias, down, down_bias;  // of the MLP
};

// Options of unit_recurrence.
struct UnitRecurrenceOptions {
  std::int64_t heads = 1;  // into which D is cut
  bool gelu = true;        // exact GELU, else ReLU
  double eps = 1e-5;       // of both norms
  double dropout = 0;      // rate; 0 in evaluation
  // bf16: products may round their operands to bf16, with sums in f32; a kernel may be more exact. The op
  // chooses bf16 itself if x is bf16. A GPU's kernels do round, and the weight gradients after them are bf16
  // products.
  Dtype products = Dtype::f32;
  // Random keys of the dropout masks.
  RandomKey gate_key;  // of the two probabilities of each head: elements ((t B + b) H + j) 2 + {0: h, 1: x}
  RandomKey attn_key, mlp_key;  // of the attention's and the MLP's result: element (t B + b) D + i
};

// What the recurrence gives for all steps.
struct UnitRecurrenceResult {
  Tensor h, key, value;  // [time, batch, D] each; key and value are those of LN1(h)
};

// Returns h_t of all steps, and the keys and values of LN1(h_t).
// shapes: x [time, batch, D], qkv [time, batch, 3 D]; key and value of the state before the first step
// [batch, D], or undefined.
// dtypes: f32, f64.
// grad: x, qkv and all weights; the carried state is a constant.
// errors: ShapeError when sizes do not fit each other.
UnitRecurrenceResult unit_recurrence(const Tensor& x, const Tensor& qkv, const UnitRecurrenceWeights& weights,
                                     const UnitRecurrenceOptions& options, const Tensor& key = {},
                                     const Tensor& value = {});

namespace detail {
// The recurrence carries the keys and values of LN1(h) from step to step.
struct UnitRecurrenceArgs : RecurrenceArgs {
  const void *key0, *value0;  // of the state before the first step; may be null
  const void *wkv, *wkv_bias;
  void *key, *value;  // of LN1(h), saved
  // On the CPU: wk, wv, wo, up and down packed (ops/product/packed_gemm.h), transposed for the forward pass. A
  // weight without panels is read as it is stored, in the forward pass only.
  const void* panels[5];

  // Backward only. dh, dkey and dvalue are read and overwritten. On the CPU dkey and dvalue end as the whole
  // gradients of key and value; otherwise they and dh end undefined.
  void *dkey, *dvalue, *dqkv;
  // [.., 2 dim]: the whole gradients of key and value side by side, as products read them; null on the CPU.
  void* dkv;
};
extern Slot<UnitRecurrenceArgs> unit_recurrence_forward_slot, unit_recurrence_backward_slot;
}  // namespace detail

}  // namespace eddy
