// The raw matrix product that all products use, row-major, for a batch of matrices:
//
//   C = alpha op(A) op(B) + beta C
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// op(A) is [m, k], op(B) [k, n], C [m, n]. `lda`, `ldb`, `ldc` are the row strides of the matrices as stored,
// in elements. `batch` matrices lie `stride_*` elements apart, and `outer` such batches `outer_*` elements
// apart: two levels serve [batch, heads] without copies.
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
  // [n] of C's dtype, contiguous, or null: added to every row of C. Needs beta = 0.
  const void* bias = nullptr;
  // With dtype bf16: C is f32, so that several products accumulate without rounding in between.
  bool c_f32 = false;
  // On the CPU: op(B) packed into panels (packed_gemm.h), read instead of B; or null. For one matrix, A not
  // transposed and beta 0 or 1.
  const void* panels_b = nullptr;
  // C becomes max(C, 0), after the bias. Needs beta = 0 and k >= 1.
  bool relu = false;

  // Fusions that only some GPUs support, for one matrix. Ask product_supports_slot first (fused_product.h).
  // [m] of C's dtype, or null: receives the sum of op(A) over k, whatever beta is.
  void* sums = nullptr;
  // Like C, or null: with beta it is added in place of C, also beside a bias.
  const void* addend = nullptr;
  // One bit for each element of C, or null; rows lie mask_stride bits apart, a multiple of 128. With `relu`
  // the mask is written: 1 where the element is positive, and where it is 0 (cuBLASLt 13.1). Without `relu` it is read: elements with bit 0
  // become 0. Needs beta = 0.
  void* mask = nullptr;
  std::int64_t mask_stride = 0;
};
extern Slot<GemmArgs> gemm_slot;

// For the CPU's ways to compute a product. Pieces below this many multiply-adds cost more to hand out than to compute.
inline constexpr std::int64_t kSmallPiece = 1 << 18;
// Applies max(C, 0) to a piece [m, n] of C that this thread has just written and its cache still holds.
void apply_relu(const GemmArgs& g, std::int64_t m, std::int64_t n, void* c);

// Capability query: may the device fuse products (set_gpu_kernels), and does it fuse this one? It asks for the
// fusions whose pointers in `product` are not null, and for a mask if mask_stride is not 0 (its address may
// still be null).
struct ProductSupportQuery {
  const GemmArgs* product;  // null: only whether some may be fused
  bool* fits;               // the result
};
extern Slot<ProductSupportQuery> product_supports_slot;

}  // namespace eddy
