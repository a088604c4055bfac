// The chain of unit recurrence with forget, all of one layer that cannot leave the loop over time.
// Time-major.
//
// Given x_t and q_t, kx_t, vx_t of LN1(x_t) (one product before the loop), for t = 1..n, per row and head:
//
//   g   = sigmoid(q (kh - kx) / sqrt(d))          softmax over two scores; t = 1 without a carried state: g =
//   0 o   = vx + g (vh - vx) r_t = x_t + o Wo^T h_t = r_t + act(LN2(r_t) Wup^T) Wdown^T kh, vh = LN1(h_t)
//   Wk^T, LN1(h_t) Wv^T          read by step t + 1, and by y_t = T(h_t) after the loop
//
// Products use weights packed once per call: at 16 rows a plain sgemm packs its operands again at every step
// and reaches a third of the processor's rate. Backward runs the same chain with transposed weights and
// leaves every weight gradient to one product over all rows and steps.
//
// Multiply-adds per row and step: D^2 (2 + 1 + 2 M/D), M the MLP width: 11 D^2 at M = 4 D, forward; the same
// for the chain of the backward, and the same for the weight gradients. Kept for the backward per row and
// step: x, q, kx, vx, kh, vh, o, r, a2, h, a1 (D each), u (M), g (heads), four norm statistics: 60 D bytes in
// f32 at M = 4 D, and the statistics. A GPU's one kernel for all steps keeps o, a1, a2 and u as bf16 where
// products are: 46 D bytes (UnitRecurrenceArgs::kept).
//
// Source: Kausik, "Recurrent Transformers" (2025); the hoisted form and its derivative follow from the first
// half of a window not seeing the second.
#pragma once

#include <vector>

#include "ops/core/slot.h"
#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy {

// Parameters of the layer, as TransformerLayer holds them; biases may be undefined.
// wqkv [3 D, D]: rows of q, of k, of v. wo [D, D]. up [M, D]. down [D, M].
struct UnitRecurrenceWeights {
  Tensor norm1, norm1_bias, wqkv, wqkv_bias, wo, wo_bias, norm2, norm2_bias, up, up_bias, down, down_bias;
};

struct UnitRecurrenceOptions {
  std::int64_t heads = 1;
  bool gelu = true;  // exact GELU, else ReLU
  double eps = 1e-5;
  double dropout = 0;  // rate; 0 in evaluation
  // bf16: products may round what they read to bf16, their sums being f32; a kernel may be more exact. Chosen
  // by the op itself for an x in bf16. The fused kernels of a GPU round, and the weights' gradients behind
  // them are products of bf16. On the CPU, and with the plain kernels of a GPU, all of it stays f32: to round
  // the rows first would move more bytes than it saves beside TF32, which bf16 runs have on (set_tf32).
  Dtype products = Dtype::f32;
  RandomKey gate_key;  // of the two probabilities of each head: elements ((t B + b) H + j) 2 + {0: h, 1: x}
  RandomKey attn_key, mlp_key;  // of the attention's and the MLP's result: element (t B + b) D + i
};

struct UnitRecurrenceResult {
  Tensor h, key, value;  // [time, batch, D] each; key and value are those of LN1(h)
};

// The chain over all steps.
// shapes: x [time, batch, D], qkv [time, batch, 3 D]; key and value of the state before the first step
// [batch, D], or undefined.
// dtypes: f32, f64.
// grad: x, qkv and all weights; the carried state is a constant.
// errors: ShapeError when sizes do not fit each other.
UnitRecurrenceResult unit_recurrence(const Tensor& x, const Tensor& qkv, const UnitRecurrenceWeights& weights,
                                     const UnitRecurrenceOptions& options, const Tensor& key = {},
                                     const Tensor& value = {});

// Everything the kernels read and write. Arrays are [time, batch, …] and contiguous unless said otherwise.
struct UnitRecurrenceArgs {
  Dtype dtype, products;  // products: bf16 when they may round what they read to it
  // What o, a1, a2, u, act, du, do_out, dmlp_out and dproducts are stored as: dtype, or bf16, where kernels
  // take the call whose products round them to that anyway. But for two of them only products read these, and
  // sums for biases. u gives the slope of the activation, and act again: it is a product of bf16, so that one
  // more rounding moves it by less than it was off, and not past 0. Blocks read o for do o, the mean of the
  // gradients of probabilities, where its rounding counts as much as that of the do that a product made.
  // All else stays f32: x, h, r, key, value, dx, dh, dkey and dvalue are sums that pass from step to step,
  // and of da1 and da2 a norm's gradient takes differences, beside r and h, which one kernel reads after the
  // loop in one type.
  Dtype kept;
  std::int64_t time, batch, dim, mlp, heads;
  // The recurrence over blocks (ops/recurrence/block_forget.h): a step has `block` rows of each of `sequences`
  // sequences, which make its batch, but the last one has `last` rows of each, and arrays end there. The unit
  // recurrence has sequences = batch and block = last = 1.
  std::int64_t sequences, block, last;
  const RandomKey* keys;  // block recurrence with dropout: of every step three, on the device; else null
  // Accumulate (ops/recurrence/block_accumulate.h): of the older halves of the last window but one and of the last, how
  // many rows of each sequence nobody reads, which have no masks; elsewhere 0.
  std::int64_t unread[2];
  bool gelu;
  double eps, dropout;
  RandomKey gate_key, attn_key, mlp_key;

  const void *norm1, *norm1_bias, *wkv, *wkv_bias, *wo, *wo_bias, *norm2, *norm2_bias, *up, *up_bias, *down,
      *down_bias;
  const void *x, *qkv, *key0, *value0;  // key0, value0 may be null

  // Made by the forward, read by the backward. Statistics are [time, batch].
  void *h, *key, *value, *o, *r, *a1, *a2, *u, *gate, *mean1, *rstd1, *mean2, *rstd2;

  // Backward only. dh, dkey and dvalue come in; dkey and dvalue leave as the whole gradients of key and
  // value, and what dh leaves as is not said.
  void *dh, *dkey, *dvalue;
  void *dx, *dqkv;                     // accumulate: dqkv is working memory of one window, [2 batch, 3 dim]
  void *act, *du, *do_out, *dmlp_out;  // act(u), its gradient before the activation, and the gradients of the
                                       // two results after dropout: right sides of the weight products
  void *da1, *da2;                     // gradients of the normalised rows
  // [.., 2 dim]: dkey and dvalue as products read them, side by side; null where `kept` is dtype, and
  // products read those themselves. Accumulate: [.., 3 dim], dqkv, never null.
  void* dproducts;

  // Working memory.
  void* packed;   // on the CPU the weights packed for products with few rows; null elsewhere
  void* scratch;  // [batch, max(dim, mlp)]; accumulate: [2 batch, dim]
};
extern Slot<UnitRecurrenceArgs> unit_recurrence_forward_slot, unit_recurrence_backward_slot;

struct OpSpec;
std::vector<OpSpec> unit_recurrence_specs();

}  // namespace eddy
