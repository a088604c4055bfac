// CPU products with a small factor or a small result, as in narrow layers: x W^T, dy W and dy^T x of some
// hundred or thousand rows, with weights that fit a cache. OpenBLAS packs both operands at every call, which
// takes a third of the time, and waits for rows that are in no cache. Here operands are read in place (only
// W^T is copied, once per call), and tiles prefetch what comes next.
//
// `inner` is cut into blocks. An element of C is a sum of block sums, each in rising order. The cut depends
// only on the shape, and for x W^T and dy W not on the number of rows. So bits depend neither on other rows
// nor on the number of threads.
//
// It does 1.2 to 2 times OpenBLAS's rate (docs/performance.md#products-in-f32). In dy^T x a thread has all of C at
// once, and in all products sums stay in registers from start to end (docs/choices.md#products-of-narrow-layers).
#pragma once

#include <cstdint>

#include "ops/product/gemm.h"

namespace eddy::detail {

// C = A B, or C += A B if `accumulate`. B is [inner, columns] and C [rows, columns], rows `b_stride` and
// `c_stride` elements apart; element (r, k) of A lies at a[r * a_row + k * a_inner]. `columns` is a multiple
// of the kernel's lanes.
struct SmallGemmArgs {
  std::int64_t rows, columns, inner;
  std::int64_t inner_block;  // inner indices that are summed in registers
  const float* a;
  std::int64_t a_row, a_inner;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  bool accumulate;
  bool relu;  // C = max(C, 0) last
};

// The kernel of the instruction set in use. `lanes` is 0 if there is none: on the baseline OpenBLAS is
// faster.
struct SmallGemmKernel {
  std::int64_t lanes;
  void (*multiply)(const SmallGemmArgs&);
};
const SmallGemmKernel& small_gemm_kernel();
// Called when an instruction set is installed.
void set_small_gemm_kernel(const SmallGemmKernel& kernel);

// Computes the product and returns true if this kernel suits its sizes; otherwise does nothing and returns
// false.
bool try_small_gemm(const GemmArgs& args);

}  // namespace eddy::detail
