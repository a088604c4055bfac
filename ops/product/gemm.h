// The raw matrix product every op stands on: C = alpha op(A) op(B) + beta C, row-major, for a batch of
// matrices.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// op(A) is [m, k], op(B) [k, n], C [m, n]; `lda`, `ldb`, `ldc` are the row strides of the matrices as stored,
// in elements. `batch` matrices lie `stride_*` elements apart; two batch levels serve [batch, heads] without
// copies.
struct GemmArgs {
  Dtype dtype;  // bf16 is summed in f32; not on the CPU
  bool transpose_a = false, transpose_b = false;
  std::int64_t m, n, k;
  const void* a;
  std::int64_t lda;
  const void* b;
  std::int64_t ldb;
  void* c;
  std::int64_t ldc;
  double alpha = 1, beta = 0;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  std::int64_t outer = 1, outer_a = 0, outer_b = 0, outer_c = 0;
  // [n] of C's dtype, adjacent, or null: added to every row of C; beta must be 0 then.
  const void* bias = nullptr;
  // With dtype bf16: C is f32, so that sums over several products are not rounded in between.
  bool c_f32 = false;
  // On the CPU: op(B) as panels of ops/product/packed_gemm.h, or null; B counts else. For one matrix, A not
  // transposed and beta 0 or 1.
  const void* panels_b = nullptr;
  // C becomes max(C, 0), behind the bias; beta must be 0 then, and k at least 1.
  bool relu = false;

  // What only some GPUs do, of one matrix, and only where product_question_slot said so (fused_product.h).
  // [m] of C's dtype, or null: the sum of op(A) over k is written there, whatever beta is.
  void* sums = nullptr;
  // A bit for each element of C, or null; rows lie mask_stride bits apart, a multiple of 128. With `relu` it
  // is written, 1 where the element is positive; without, elements with 0 become 0, and beta must be 0.
  void* mask = nullptr;
  std::int64_t mask_stride = 0;
};
extern Slot<GemmArgs> gemm_slot;

// Asks whether products may do more than multiply (set_product_kernel), and whether they can this: what has
// an address that is not null, and a mask where there is a mask_stride, whose address may still be null.
struct ProductQuestion {
  const GemmArgs* product;  // with what it should do; or null, to ask for no product in particular
  bool* fits;
};
extern Slot<ProductQuestion> product_question_slot;

}  // namespace eddy
