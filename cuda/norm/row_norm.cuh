// What the kernels of layer and RMS norm share: those of rows in registers (register_row_norm.cu) and those of all
// other rows (row_norm.cu).
#pragma once

#include "cuda/core/numbers.cuh"
#include "ops/norm/row_norm.h"

namespace eddy::cuda {

// Returns what row `row` adds behind the weight, or null: the bias, or with an RMS norm a row of the table.
template <bool Centred>
__device__ const float* shift_of(const RowNormArgs& args, std::int64_t row) {
  if (Centred || args.table == nullptr) return static_cast<const float*>(args.bias);
  return static_cast<const float*>(args.table) + row % args.table_rows * args.width;
}

// Launch the kernels of rows that fit registers. `joint`: one kernel computes dx and the partial sums, those of dx too
// where they are wanted; else dx alone.
template <bool Centred, class T>
void register_norm_forward(const char* name, const RowNormArgs& args);
template <bool Centred, class T>
void register_norm_backward(const char* name, const RowNormBackwardArgs& args, bool joint);

}  // namespace eddy::cuda
