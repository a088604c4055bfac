// What the kernels of the two recurrences that are ops (unit_recurrence.h, block_recurrence.h) both read and write: the
// arrays of the layer, which each of them adds its own to.
#pragma once

#include "ops/core/matmul_precision.h"
#include "ops/core/slot.h"
#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy::detail {

// Arrays are [time, batch, ...] and contiguous unless said otherwise.
struct RecurrenceArgs {
  Dtype dtype, products;  // products: bf16 if they may round what they read to bf16
  // The dtype in which o, a1, a2, u, act, du, do_out, dmlp_out and the gradients that products read are stored:
  // `dtype`, or bf16 if the kernels' products round them to bf16 anyway. Only products and bias sums read them,
  // with two exceptions:
  //   u   gives the slope of the activation, and act again. It is the result of a bf16 product, so one more
  //       rounding moves it by less than its error, and not past 0.
  //   o   is read over blocks for do . o, the mean of the gradients of probabilities. Its rounding counts
  //       there as much as that of do, which a bf16 product made.
  // All else stays f32: x, h, r, key, value, dx, dh, dkey and dvalue are sums that pass from step to step; a
  // norm's gradient takes differences of da1 and da2, and reads r and h in the same kernel, in one dtype.
  Dtype kept;
  MatmulPrecision precision;  // of products of f32: the weights'
  std::int64_t time, batch, dim, mlp, heads;
  // A step has `block` rows of each of `sequences` sequences, together its batch. The last step has `last` rows
  // of each, and arrays end there. The unit recurrence has sequences = batch and block = last = 1.
  std::int64_t sequences, block, last;
  // How many rows of each sequence are not read, and have no masks, in the last step but one and in the last:
  // in those of older halves (block_recurrence.h).
  std::int64_t unread[2];
  bool gelu;
  double eps, dropout;
  const RandomKey* keys;  // of the dropout masks, three for each step, on the device; or null:
  RandomKey gate_key, attn_key, mlp_key;  // the same three for all steps, of the unit recurrence

  const void *norm1, *norm1_bias, *wo, *wo_bias, *norm2, *norm2_bias, *up, *up_bias, *down, *down_bias;
  const void *x, *qkv;

  // Saved by the forward for the backward. Statistics are [time, batch].
  void *h, *o, *r, *a1, *a2, *u, *gate, *mean1, *rstd1, *mean2, *rstd2;

  // Backward only.
  void *dh, *dx;
  void *act, *du, *do_out, *dmlp_out;  // act(u), its gradient before the activation, and the gradients of the
                                       // two results after dropout: operands of the weight-gradient products
  void *da1, *da2;                     // gradients of the normalised rows
  void* scratch;                       // working memory for the rows of one step
};

// Capability query for the kernels of the block recurrences, forward and backward: does the device use them for these
// sizes?
struct RecurrenceSupportQuery {
  std::int64_t dim, mlp, heads, sequences, block;
  Dtype products;
  bool* fits;  // the result
  bool spreads_output = true;
};

}  // namespace eddy::detail
