// The end of a gradient that kernels leave as partial sums, one row for each block of rows: those of a norm's
// weight and bias, of the gates' biases.
#pragma once

#include <initializer_list>

#include "autograd/node.h"
#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// The gradient of an input is the sum over the rows of partials [blocks, width]; undefined where it is not
// wanted.
struct PartialSums {
  int input;
  Tensor partials;
};

// Gives all of them, of one shape and type and four at most: on a GPU by one launch, where they have not too
// many rows for that, else each by sum_into.
void give_partial_sums(VjpContext& v, std::initializer_list<PartialSums> parts);

// sums[t][i] = beta[t] sums[t][i] + the sum over `blocks` rows of partials[t][row, i], for `tensors` of them.
// On a GPU alone.
struct PartialSumsArgs {
  static constexpr int kMost = 4;
  Dtype dtype;
  std::int64_t blocks, width;
  int tensors;
  const void* partials[kMost];
  void* sums[kMost];
  float beta[kMost];
};
extern Slot<PartialSumsArgs> partial_sums_slot;

}  // namespace eddy
