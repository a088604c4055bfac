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
// On the CPU, products use weights that are packed once per call. At 16 rows a plain sgemm packs its operands
// again at every step and reaches a third of the processor's rate. The backward runs the same recurrence with
// transposed weights; then each weight gradient is one product over all rows and steps.
//
// Cost per row and step, with D the width and M the MLP width:
//
//   multiply-adds, forward          D^2 (2 + 1 + 2 M/D), that is 11 D^2 at M = 4 D
//   multiply-adds, backward         as many again, and as many again for the weight gradients
//   saved for backward              x, q, kx, vx, kh, vh, o, r, a2, h, a1 (D each), u (M), g (heads) and four
//                                   norm statistics: in f32 at M = 4 D 60 D bytes, and the statistics
//   saved by a GPU's fused kernel   the same, with o, a1, a2 and u in bf16 where products are bf16
//                                   (UnitRecurrenceArgs::kept): 46 D bytes
//
// Source: Kausik, "Recurrent Transformers" (2025). The projections q, kx, vx can be computed before
// the loop because the first half of a window does not see the second.
#pragma once

#include "ops/core/slot.h"
#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy {

// Parameters of the layer, as TransformerLayer holds them; biases may be undefined.
// shapes: wqkv [3 D, D], rows of q, then k, then v; wo [D, D]; up [M, D]; down [D, M].
struct UnitRecurrenceWeights {
  Tensor norm1, norm1_bias, wqkv, wqkv_bias, wo, wo_bias, norm2, norm2_bias, up, up_bias, down, down_bias;
};

struct UnitRecurrenceOptions {
  std::int64_t heads = 1;
  bool gelu = true;  // exact GELU, else ReLU
  double eps = 1e-5;
  double dropout = 0;  // rate; 0 in evaluation
  // bf16: products may round their operands to bf16, with sums in f32; a kernel may be more exact. The op
  // chooses bf16 itself if x is bf16. The fused kernels of a GPU do round, and the weight gradients after
  // them are bf16 products. On the CPU, and in the plain kernels of a GPU, everything stays f32. There,
  // rounding would move more bytes than it saves over TF32, which is on in bf16 runs (set_tf32).
  Dtype products = Dtype::f32;
  // Random keys of the dropout masks.
  RandomKey gate_key;  // of the two probabilities of each head: elements ((t B + b) H + j) 2 + {0: h, 1: x}
  RandomKey attn_key, mlp_key;  // of the attention's and the MLP's result: element (t B + b) D + i
};

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

// Everything that the kernels read and write. Arrays are contiguous and [time, batch, ...] by default.
struct UnitRecurrenceArgs {
  Dtype dtype, products;  // products: bf16 if they may round their operands to bf16
  // The dtype in which o, a1, a2, u, act, du, do_out, dmlp_out and dproducts are stored: `dtype`, or bf16 if
  // the kernels' products round them to bf16 anyway. Only products and bias sums read them, with two
  // exceptions:
  //   u   gives the slope of the activation, and act again. It is the result of a bf16 product, so one more
  //       rounding moves it by less than its error, and not past 0.
  //   o   is read over blocks for do . o, the mean of the gradients of probabilities. Its rounding counts
  //       there as much as that of do, which a bf16 product made.
  // All else stays f32: x, h, r, key, value, dx, dh, dkey and dvalue are sums that pass from step to step; a
  // norm's gradient takes differences of da1 and da2, and reads r and h in the same kernel, in one dtype.
  Dtype kept;
  std::int64_t time, batch, dim, mlp, heads;
  // Over blocks (block_forget.h, block_accumulate.h) a step is a block: it has `block` rows of each of
  // `sequences` sequences, together its batch. The last step has `last` rows of each, and arrays end there.
  // The unit recurrence has sequences = batch and block = last = 1.
  std::int64_t sequences, block, last;
  const RandomKey* keys;  // over blocks with dropout: three for each step, on the device; else null
  // block_accumulate: how many rows of each sequence are not read, and have no masks, in the older halves of
  // the last window but one and of the last. Otherwise 0.
  std::int64_t unread[2];
  bool gelu;
  double eps, dropout;
  RandomKey gate_key, attn_key, mlp_key;

  const void *norm1, *norm1_bias, *wkv, *wkv_bias, *wo, *wo_bias, *norm2, *norm2_bias, *up, *up_bias, *down,
      *down_bias;
  const void *x, *qkv, *key0, *value0;  // key0, value0 may be null

  // Saved by the forward for the backward. Statistics are [time, batch].
  void *h, *key, *value, *o, *r, *a1, *a2, *u, *gate, *mean1, *rstd1, *mean2, *rstd2;

  // Backward only. dh, dkey and dvalue are read and overwritten: dkey and dvalue end as the whole gradients
  // of key and value; dh ends undefined.
  void *dh, *dkey, *dvalue;
  void *dx, *dqkv;                     // block_accumulate: dqkv is working memory, [2 batch, 3 dim]
  void *act, *du, *do_out, *dmlp_out;  // act(u), its gradient before the activation, and the gradients of the
                                       // two results after dropout: operands of the weight-gradient products
  void *da1, *da2;                     // gradients of the normalised rows
  // [.., 2 dim]: dkey and dvalue side by side, as products read them; null if `kept` is `dtype`, where
  // products read dkey and dvalue themselves. block_accumulate: dqkv [.., 3 dim], never null.
  void* dproducts;

  // Working memory.
  void* packed;   // on the CPU the weights packed for products with few rows; otherwise null
  void* scratch;  // [batch, max(dim, mlp)]; block_accumulate: [2 batch, dim]
};
extern Slot<UnitRecurrenceArgs> unit_recurrence_forward_slot, unit_recurrence_backward_slot;

}  // namespace eddy
