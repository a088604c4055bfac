// What layer norm and RMS norm share: the arguments of their kernels.
//
//   y = (x - mean) rstd weight + bias      layer norm: mean and rstd of the row
//   y = x rstd weight + table              RMS norm: no mean, and a row of a table in place of the bias
//
// On the CPU rows of huge entries (1e20) are normed like others: where their squares overflow, they are scaled
// first. On a GPU such a row gives zeros.
#pragma once

#include <cstdint>

#include "ops/core/cpu_path.h"
#include "ops/core/slot.h"
#include "tensor/base/host_device.h"
#include "tensor/tensor.h"

namespace eddy {

// x + delta and its norm, computed in one pass: the residual stream and the input of the next sublayer.
struct SumAndNorm {
  Tensor sum, norm;  // of x's shape
};

namespace detail {
// Rows in one partial sum of dweight and dbias: enough to make the final sum cheap, but so few that every
// thread of a CPU gets some, and that a GPU with few rows has work for all multiprocessors: there a block takes 1.4 us
// for every four rows (8,192 x 512 in bf16 on an H200).
EDDY_HOST_DEVICE constexpr std::int64_t norm_block_rows(bool on_gpu, std::int64_t rows) {
  return on_gpu && rows <= 16384 ? 16 : 64;
}
constexpr std::int64_t norm_blocks(const Device& device, std::int64_t rows) {
  const std::int64_t each = norm_block_rows(!uses_cpu_path(device), rows);
  return (rows + each - 1) / each;
}

// From this many blocks of norm_block_rows rows on, one kernel of a GPU computes dx and the partial sums. Fewer blocks
// would leave most multiprocessors of a large GPU idle, so two kernels divide rows and columns instead, and the second
// finds dy and x in the L2 cache. The number is an estimate. The choice depends on the shape alone, so that the bits
// are the same on every GPU.
inline constexpr std::int64_t kJointBlocks = 32;
// The longest row that kernel keeps in registers; rows are whole groups of 16 bytes.
inline constexpr std::int64_t kLongestJointRow = 8192;
// Whether a norm of these rows has one such kernel, on a GPU.
constexpr bool norm_is_joint(Dtype dtype, std::int64_t rows, std::int64_t width) {
  const std::int64_t each = norm_block_rows(true, rows),
                     group = 16 / static_cast<std::int64_t>(dtype_bytes(dtype));
  return (rows + each - 1) / each >= kJointBlocks && width % group == 0 && width <= kLongestJointRow;
}

// Row r of x starts at x + r * x_stride elements, row r of y at y + r * y_stride. So the rows of one time
// step of [batch, time, width] need no copy. width >= 1.
// aliasing: y may be x with the same stride (then without a gradient).
struct RowNormArgs {
  Dtype dtype;  // of x, y, delta, sum and their gradients; if bf16, everything else is f32
  std::int64_t rows, width;
  const void* x;
  std::int64_t x_stride;
  const void *weight, *bias;  // [width] or null; an RMS norm has no bias
  void* y;
  std::int64_t y_stride;
  void *mean, *rstd;  // [rows], saved for backward; null without a gradient; an RMS norm has no mean
  double eps;
  // With delta, normalises x + delta, which is written to sum [rows, width].
  const void* delta = nullptr;
  std::int64_t delta_stride = 0;
  void* sum = nullptr;
  // RMS norm: with a table (row-major), adds its row r % table_rows to row r of y.
  const void* table = nullptr;
  std::int64_t table_rows = 1;
};

// Computes dx, and one partial sum of dweight and dbias for each block b of norm_block_rows rows:
//   dx         = dx_beta * dx + the gradient of x
//   partial[b] = partial_beta * partial[b] + the sum over the rows of block b
// sum_into(dweight, partials, beta) completes dweight. A recurrence calls this once per time step with the
// same partials, with partial_beta 0 at the first call and 1 afterwards.
// aliasing: dx may be dy with the same stride; else outputs overlap nothing.
struct RowNormBackwardArgs {
  Dtype dtype;
  std::int64_t rows, width;
  const void* dy;
  std::int64_t dy_stride;
  const void* x;
  std::int64_t x_stride;
  const void* weight;  // [width] or null
  const void *mean, *rstd;
  void* dx;  // null if not needed
  std::int64_t dx_stride;
  float dx_beta;
  void *dweight_partials, *dbias_partials;  // [norm_blocks(device, rows), width]; each null if not needed
  float partial_beta;
  const void* dsum = nullptr;  // [rows, width] or null: dx = dsum + the gradient of x, with dx_beta 0
  // As the other partial sums, in f32, or null: the sums of dx as it is stored. Where norm_is_joint, with dx and one of
  // the others, on a GPU.
  void* dx_partials = nullptr;
};
}  // namespace detail

}  // namespace eddy
