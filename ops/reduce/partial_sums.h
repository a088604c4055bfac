// Gradients that are sums over rows, left as partial sums, one row for each block of rows, and added later:
// the biases of products, the weight and bias of a norm, the biases of gates.
#pragma once

#include <initializer_list>

#include "ops/core/gradient_buffer.h"
#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy::detail {

// Memory for rows [blocks, width] whose sum is added to the gradient `to`; both undefined if it is not needed.
// Without `to` the rows are added later. Rows may also have the gradient's axes and others before them, over
// which they are summed.
struct PartialSums {
  Tensor rows;
  GradientBuffer to;
};

// Returns memory for the partial sums of the gradient of an input. The caller writes the rows and then calls
// add_partial_sums. On a GPU the rows of an input that has a gradient already are deferred: a parameter that
// every step of a recurrence reads gets one sum for all steps.
PartialSums partial_sums_of(VjpContext& v, int input, std::int64_t blocks, std::int64_t width, Dtype dtype,
                            Device device);
// Adds the sum of rows [blocks, width] in f32 that another kernel has written to the gradient of an input, at once or
// with those of later uses. Only on a GPU.
void add_given_sums(VjpContext& v, int input, const Tensor& rows);
// Adds the sums of up to four partials, all of one shape and dtype, to their gradients. On a GPU one launch
// adds all, unless they have too many rows; otherwise sum_into adds each.
void add_partial_sums(std::initializer_list<PartialSums> parts);

// sum_row_blocks sums blocks of so many rows; the last one may be shorter.
inline constexpr std::int64_t kSummedRows = 64;
constexpr std::int64_t summed_blocks(std::int64_t rows) {
  return (rows + kSummedRows - 1) / kSummedRows;
}
// x [rows, width], contiguous, f32 or bf16; sums [summed_blocks(rows), width], f32. Or with `saved` of x's shape and
// dtype, x is the gradient dy of an activation: dz, which may be x, gets the gradient of what the activation read, and
// is what is summed. `saved` is the y of ReLU, or with `gelu`, in bf16 alone, what GELU read.
struct RowBlocks {
  Tensor x, sums;
  Tensor saved{}, dz{};
  bool gelu = false;
};
// Writes sums[b] = the sum of the rows of block b of x. Only on a GPU.
void sum_row_blocks(const RowBlocks& blocks);

// sums[b, i] = the sum of x[row, i], or of dz, over the rows of block b. Only on a GPU.
// aliasing: dz may be x.
struct RowBlockSumsArgs {
  Dtype dtype;  // of x, saved and dz
  std::int64_t rows, width;
  const void* x;
  float* sums;
  const void* saved;  // null without an activation
  void* dz;
  bool gelu;
};
extern Slot<RowBlockSumsArgs> row_block_sums_slot;

// sums[t][i] = beta[t] sums[t][i] + the sum over `blocks` rows of partials[t][row, i], t < tensors. Only on a
// GPU.
struct PartialSumsArgs {
  static constexpr int kMaxTensors = 4;
  Dtype dtype;
  std::int64_t blocks, width;
  int tensors;
  const void* partials[kMaxTensors];
  void* sums[kMaxTensors];
  float beta[kMaxTensors];
};
extern Slot<PartialSumsArgs> partial_sums_slot;

}  // namespace eddy::detail
