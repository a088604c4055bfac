// The transformer layer T of Kausik's recurrences that are ops (unit_recurrence.h, block_recurrence.h): checks of its
// weights, their layout for the kernels, and the weight gradients, each of which is one product over the rows of all
// steps.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy::recurrence {

// Checks that x, if defined, has this shape, and the dtype and device of `like`.
// errors: ShapeError; DtypeError; DeviceError.
void check_kind(const char* op, const char* name, const Tensor& x, const Shape& shape, const Tensor& like);
// Checks that the weights are those of a layer as wide as `like`, whose heads divide it; `up` gives the width
// of the MLP.
void check_weights(const char* op, const UnitRecurrenceWeights& w, const Tensor& like,
                   const UnitRecurrenceOptions& options);

// x row-major, and on a GPU at a multiple of 16 bytes, as its kernels read it; a copy if x is not. Undefined for an
// undefined one.
Tensor readable_rows(const Tensor& x);
// The weights, contiguous, as kernels read them. Gradients go to the weights that the caller passed.
UnitRecurrenceWeights contiguous_weights(const UnitRecurrenceWeights& w);
// The weights upcast to f32.
UnitRecurrenceWeights upcast_weights(const UnitRecurrenceWeights& w);
// Fills in the arguments' options, weights (all but wqkv), their sizes and precision, and `kept`, the dtype of the
// saved rows: bf16 if the products are bf16 and `stores_bf16` says that the kernels then store bf16.
void bind(detail::RecurrenceArgs& args, const UnitRecurrenceWeights& w, const UnitRecurrenceOptions& options,
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
void weight_product(const Tensor& dst, std::int64_t row, const Tensor& dy, const Tensor& x, double beta,
                    MatmulPrecision precision);
// dst [width] += the sum of the rows of dy [.., width].
void add_rows(const Tensor& dst, const Tensor& dy);

// The layer's rows that a forward kernel saves for the backward: the first tensors that a node saves. `gate`
// belongs to the recurrence.
struct SavedRows {
  Tensor o, r, a1, a2, u, gate, mean1, rstd1, mean2, rstd2;

  explicit SavedRows(const VjpContext& context);
  // Allocates them for rows [.., dim] and puts their addresses into the arguments, whose sizes `bind` has set. `read`:
  // those that go through the first norm, which are as many unless a recurrence leaves some unfinished.
  SavedRows(detail::RecurrenceArgs& args, const Tensor& rows, const Tensor& read);
  // Returns them, followed by `more`.
  std::vector<Tensor> with(const std::vector<Tensor>& more) const;
};

// The layer's rows that a backward kernel writes for the weight gradients.
struct BackwardRows {
  Tensor act, du, dattn, dmlp, da1, da2;

  // Allocates them for rows of the layer's width, u, and the rows that the first norm reads, and puts their addresses
  // into the arguments.
  BackwardRows(detail::RecurrenceArgs& args, const Tensor& rows, const Tensor& u, const Tensor& read);
};

// The gradient of an output, which a kernel may overwrite: the tensor itself if nothing else uses it, else a
// copy; zeros if the output has no gradient.
Tensor writable_gradient(const VjpContext& context, int output);

// Passes on the gradients of all weights but wqkv, with products of `precision`. norm1, the norm of the rows x, is
// input `first` of the node.
void accumulate_weight_gradients(VjpContext& context, int first, const Tensor& x, const SavedRows& saved,
                                 const BackwardRows& rows, MatmulPrecision precision);

// How rows are divided into steps.
struct Steps {
  std::int64_t time, batch, sequences, block, last;
  Tensor keys;  // see RecurrenceArgs::keys
};
// Puts them into the arguments.
void bind(detail::RecurrenceArgs& args, const Steps& steps);
// Returns the steps of rows [sequences positions, dim] in blocks, with the keys of their masks on x's device, of
// which there must be `keys_of_block` for each block if `dropout` is above 0.
// errors: ShapeError; ValueError for another number of keys.
Steps steps_of_blocks(const char* op, const Tensor& x, std::int64_t sequences, std::int64_t block,
                      double dropout, const std::vector<RandomKey>& keys, std::int64_t keys_of_block);

// All rows of blocks [.., dim] in one tensor [rows, dim], block after block.
Tensor rows_of_blocks(const std::vector<Tensor>& blocks);

}  // namespace eddy::recurrence
