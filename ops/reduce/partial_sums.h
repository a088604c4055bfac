// The final sum of gradients that kernels leave as partial sums, one row for each block of rows: the weight
// and bias of a norm, the biases of gates.
#pragma once

#include <initializer_list>

#include "autograd/node.h"
#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// The gradient of an input is the sum over the rows of partials [blocks, width]; partials are undefined if it
// is not needed.
struct PartialSums {
  int input;
  Tensor partials;
};

// Adds the sums of up to four partials, all of one shape and dtype, to the gradients of their inputs. On a
// GPU one launch adds all, unless they have too many rows; otherwise sum_into adds each.
void give_partial_sums(VjpContext& v, std::initializer_list<PartialSums> parts);

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

}  // namespace eddy
