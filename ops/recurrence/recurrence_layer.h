// The transformer layer T of Kausik's three fused recurrences (unit_recurrence.h, block_forget.h,
// block_accumulate.h): checks of its weights, their layout for the kernels, and the weight gradients, each of
// which is one product over the rows of all steps.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy::recurrence {

inline const void* data_of(const Tensor& x) {
  return x.defined() ? x.raw_data() : nullptr;
}

// Checks that x, if defined, has this shape, and the dtype and device of `like`.
// errors: ShapeError; DtypeError; DeviceError.
void check_kind(const char* op, const char* name, const Tensor& x, const Shape& shape, const Tensor& like);
// Checks that the weights are those of a layer as wide as `like`; `up` gives the width of the MLP.
void check_weights(const char* op, const UnitRecurrenceWeights& w, const Tensor& like);

// x, contiguous; undefined if x is.
Tensor row_major(const Tensor& x);
// The weights, contiguous, as kernels read them. Gradients go to the weights that the caller passed.
UnitRecurrenceWeights row_major(const UnitRecurrenceWeights& w);
// The weights widened to f32.
UnitRecurrenceWeights wide_weights(const UnitRecurrenceWeights& w);
// The random keys of all dropout masks, in the memory of x's device; undefined if there are none.
Tensor keys_on(const Tensor& x, const std::vector<RandomKey>& keys);

// Sets the arguments' sizes, options and weights (all but wqkv), and `kept`, the dtype of the saved rows:
// bf16 if the products are bf16 and the kernels then store bf16 (`stores_bf16`).
void bind(UnitRecurrenceArgs& args, const UnitRecurrenceWeights& w, const UnitRecurrenceOptions& options,
          bool stores_bf16);

// The indices of the weights among the inputs of a node.
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
// The weights in the order of `Weight`.
std::vector<Tensor> in_order(const UnitRecurrenceWeights& w);

// dst [out, in] = beta dst + dy^T x. `row` is the first row of dst that is written.
// shapes: dy [.., out], x [.., in].
// dtypes: dy and x have dst's dtype, or both are bf16.
void weight_product(const Tensor& dst, std::int64_t row, const Tensor& dy, const Tensor& x, double beta);
// dst [width] += the sum of the rows of dy [.., width].
void add_rows(const Tensor& dst, const Tensor& dy);

// The layer's rows that a forward kernel saves for the backward. `gate` belongs to the recurrence.
struct SavedRows {
  Tensor o, r, a1, a2, u, gate, mean1, rstd1, mean2, rstd2;
};
// Allocates them for rows [.., dim] and sets their addresses in the arguments; call `bind` first.
SavedRows saved_rows(UnitRecurrenceArgs& args, const Tensor& rows);

// The layer's rows that a backward kernel writes for the weight gradients.
struct BackwardRows {
  Tensor act, du, dattn, dmlp, da1, da2;
};
// Allocates them for rows of the layer's width and u, and sets their addresses in the arguments.
BackwardRows backward_rows(UnitRecurrenceArgs& args, const Tensor& rows, const Tensor& u);

// The gradient of an output, which a kernel may overwrite: the tensor itself if nothing else uses it, else a
// copy; zeros if the output has no gradient.
Tensor writable_gradient(const VjpContext& context, int output);

// The inputs for the gradient of a norm's weight: the gradient of the normalised rows, the rows before the
// norm, and their statistics.
struct NormRows {
  Tensor dy, x, mean, rstd;
};
// Both operands of every weight-gradient product of the layer.
struct LayerRows {
  NormRows norm1, norm2;
  Tensor dattn, o, du, a2, dmlp, act;
};
// Passes on the gradients of all weights but wqkv. norm1 is input `first` of the node.
void give_weight_gradients(VjpContext& context, int first, const LayerRows& rows);

}  // namespace eddy::recurrence
