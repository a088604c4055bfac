// The raw matrix product that all products use, row-major, for a batch of matrices:
//
//   C = alpha op(A) op(B) + beta C
#pragma once

#include <cstdint>

#include "ops/core/matmul_precision.h"
#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy::detail {

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
  // To what f32 factors may be rounded.
  MatmulPrecision precision = MatmulPrecision::f32;
  // With dtype bf16: C is f32, so that several products accumulate without rounding in between.
  bool c_f32 = false;
  // On the CPU: op(B) packed into panels (packed_gemm.h), read instead of B; or null. For one matrix, A not
  // transposed and beta 0 or 1.
  const void* panels_b = nullptr;
  // C becomes max(C, 0), after the bias. Needs beta = 0 and k >= 1.
  bool relu = false;

  // Like C, or null: with beta it is added in place of C, also beside a bias, for one matrix. Only some GPUs can; ask
  // product_supports_slot first (multiply_add in product.h).
  const void* addend = nullptr;
};
extern Slot<GemmArgs> gemm_slot;

// For the CPU's ways to compute a product. Pieces below this many multiply-adds cost more to hand out than to compute.
inline constexpr std::int64_t kSmallPiece = 1 << 18;
// Applies max(C, 0) to a piece [m, n] of C that this thread has just written and its cache still holds.
void apply_relu(const GemmArgs& g, std::int64_t m, std::int64_t n, void* c);

// Capability query: may the device add in products (set_gpu_kernels), and in this one?
struct ProductSupportQuery {
  const GemmArgs* product;  // null: only whether some may
  bool* fits;               // the result
};
extern Slot<ProductSupportQuery> product_supports_slot;

// ---- the two products of an MLP whose activation is GELU, with the activation in the product's kernel

// Only on a GPU, in bf16 with sums in f32; elsewhere they are composed (linear.cpp):
//
//   forward    z = x W^T + b                 act = gelu(z)
//   backward   dz = (dy W) gelu'(z)          sums of dz over blocks of rows, for the gradient of b
//
// In memory are z, rounded to bf16 before GELU reads it, act and dz. dy W is rounded to bf16, and in registers alone.
//
// left is x or dy, [rows, depth]. The weight is [columns, depth] forward, and [depth, columns] backward. Strides are of
// rows, in numbers; what has no stride is contiguous.
struct GeluProductArgs {
  Dtype dtype;
  std::int64_t rows, columns, depth;
  const void* left;
  std::int64_t left_stride;
  const void* weight;
  std::int64_t weight_stride;
  const void* bias = nullptr;  // forward: [columns], at a multiple of 16 bytes, or null
  void* z = nullptr;       // [rows, columns]: forward a result, or null where nobody wants it; backward read
  void* result = nullptr;  // [rows, columns]: act or dz
  float* sums = nullptr;   // backward: [summed_blocks(rows), columns] (partial_sums.h), or null
};
extern Slot<GeluProductArgs> gelu_product_forward_slot, gelu_product_backward_slot;

// Capability query: has the device such a kernel for this product, and is it chosen (set_gpu_kernels)? Of the product
// only the dtype, sizes, strides and what is read are known.
struct GeluProductQuery {
  const GeluProductArgs* product;
  bool* fits;  // the result
};
extern Slot<GeluProductQuery> gelu_product_supports_slot;

}  // namespace eddy::detail
