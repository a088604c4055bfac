// The layer T inside the recurrences that are one op (unit_recurrence.h, block_forget.h,
// block_accumulate.h): its weights as kernels read them, and their gradients, each one product over the rows
// of all steps.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy::recurrence {

inline const void* data_of(const Tensor& x) {
  return x.defined() ? x.raw_data() : nullptr;
}

// Refuses x when it is defined and not of this shape, or not of the kind of `like`.
void check_kind(const char* op, const char* name, const Tensor& x, const Shape& shape, const Tensor& like);
// Refuses weights that are not those of a layer of `like`'s width; the width of the MLP is that of `up`.
void check_weights(const char* op, const UnitRecurrenceWeights& w, const Tensor& like);

Tensor row_major(const Tensor& x);
// The weights as kernels read them. Gradients go to the ones that were given.
UnitRecurrenceWeights row_major(const UnitRecurrenceWeights& w);
UnitRecurrenceWeights wide_weights(const UnitRecurrenceWeights& w);
// The keys of all masks in the memory of x's device; undefined without any.
Tensor keys_on(const Tensor& x, const std::vector<RandomKey>& keys);

// Puts the sizes, the options and the weights, all but wqkv, into the arguments, and what rows are kept as:
// `narrows` where products are bf16 and the kernels to be called keep bf16 then.
void bind(UnitRecurrenceArgs& args, const UnitRecurrenceWeights& w, const UnitRecurrenceOptions& options,
          bool narrows);

// The weights' places among the inputs of a node that has them in this order.
enum Weight {
  kNorm1,
  kNorm1Bias,
  kWqkv,
  kWqkvBias,
  kWo,
  kWoBias,
  kNorm2,
  kNorm2Bias,
  kUp,
  kUpBias,
  kDown,
  kDownBias
};
std::vector<Tensor> in_order(const UnitRecurrenceWeights& w);

// dst [out, in] = beta dst + dy^T x over rows [.., out] and [.., in], both of dst's dtype or both bf16; `row`
// is the first output row written.
void weight_product(const Tensor& dst, std::int64_t row, const Tensor& dy, const Tensor& x, double beta);
// dst [width] += the sum of the rows of dy [.., width].
void add_rows(const Tensor& dst, const Tensor& dy);

// What a forward kernel keeps of the layer's rows for the backward; `gate` is the chain's own.
struct KeptRows {
  Tensor o, r, a1, a2, u, gate, mean1, rstd1, mean2, rstd2;
};
// Makes them beside rows [.., dim], and names them in the arguments, whose sizes are bound.
KeptRows kept_rows(UnitRecurrenceArgs& args, const Tensor& rows);

// What a backward kernel leaves of the layer's rows, for the weights' gradients.
struct BackwardRows {
  Tensor act, du, dattn, dmlp, da1, da2;
};
// Makes them beside rows of the layer's width and u, and names them in the arguments.
BackwardRows backward_rows(UnitRecurrenceArgs& args, const Tensor& rows, const Tensor& u);

// The gradient of an output for a kernel to write over: itself where nobody else sees it, else a copy; zeros
// when none arrived.
Tensor own_gradient(const VjpContext& context, int output);

// What a norm's gain gets its gradient from: that of the normalised rows, the rows before, their statistics.
struct NormRows {
  Tensor dy, x, mean, rstd;
};
// The rows on the two sides of every product of the layer, as its kernels left them.
struct LayerRows {
  NormRows norm1, norm2;
  Tensor dattn, o, du, a2, dmlp, act;
};
// Gives the gradients of all weights but wqkv; the node's inputs have norm1 at place `first`.
void give_weight_gradients(VjpContext& context, int first, const LayerRows& rows);

}  // namespace eddy::recurrence
