// Plans of matrix products: what cuBLASLt needs for one (descriptor, layouts, proposals of algorithms), made once per
// shape. product_algorithms.cpp says which of the proposals is taken; gemm.cpp runs it.
//
// Row-major products by a column-major library. Memory that holds the row-major matrix X [r, c] with row
// stride ld holds, read by columns, the matrix X^T [c, r] with column stride ld:
//
//   ours        C   [m, n] = op(A)   [m, k]  op(B)   [k, n]     by rows
//   cuBLASLt's  C^T [n, m] = op(B)^T [n, k]  op(A)^T [k, m]     by columns, the same bytes
//
// So cuBLASLt's first operand is our B and its second our A; it computes n rows and m columns. Read by
// columns, our B as stored already is op(B)^T, unless it is marked as transposed: then cuBLASLt transposes
// it. The same holds for A. The bias of cuBLASLt is added along a column, which is one of our rows: [n].
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "ops/product/gemm.h"

namespace eddy::cuda {

using namespace detail;

inline constexpr std::size_t kProductWorkspace = std::size_t{32} << 20;  // cuBLAS's own default on Hopper
inline constexpr std::int64_t kBiasAlignment = 16;

// What identifies a product to cuBLASLt: its shape. Only 64-bit members, so there is no padding and equal keys have
// equal bytes.
struct ProductKey {
  std::int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
  std::int64_t flags;  // a sum of the ones below
  std::int64_t align_a, align_b, align_c,
      align_bias;  // alignments of the addresses, in bytes; 0 without a bias

  bool has(std::int64_t flag) const { return (flags & flag) != 0; }
  friend bool operator==(const ProductKey& a, const ProductKey& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
};
static_assert(std::has_unique_object_representations_v<ProductKey>);

inline constexpr std::int64_t kFromBf16 = 1, kIntoBf16 = 2, kTransposedA = 4, kTransposedB = 8,
                              kWithBias = 16, kInTf32 = 32, kWithRelu = 64, kAllProductFlags = 127;

struct ProductKeyHash {
  std::size_t operator()(const ProductKey& key) const;
};

struct DestroyDesc {
  void operator()(cublasLtMatmulDesc_t desc) const { cublasLtMatmulDescDestroy(desc); }
};
struct DestroyLayout {
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
};
using ProductDesc = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyDesc>;
using ProductLayout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;

struct ProductPlan {
  ProductDesc desc;
  ProductLayout a, b, c;                        // ours
  std::vector<cublasLtMatmulAlgo_t> proposals;  // none: `status` is what the heuristic said
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
};

// The library and what it was asked so far. The mutex guards all of it.
struct ProductLibrary {
  std::mutex mutex;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::unordered_map<ProductKey, ProductPlan, ProductKeyHash> plans;
};
ProductLibrary& product_library();

// Throws the error that cuBLASLt returned from `call`.
// errors: DeviceError.
void check_lt(cublasStatus_t status, const char* call);

Dtype type_of_c(const GemmArgs& args);
// Whether the factors, of f32, are rounded to TF32.
bool rounds_to_tf32(const GemmArgs& args);
// Returns an address with this alignment, to ask for plans by: the heuristic looks at nothing else of a bias.
const void* aligned_like(std::int64_t alignment);
ProductKey key_of(const GemmArgs& args);

// Returns the plan of a shape, made when it is new. The caller holds the lock.
// errors: DeviceError.
ProductPlan& plan_of(ProductLibrary& library, const ProductKey& key);

// Enqueues a product by an algorithm, with its result at `c`. The caller holds the lock.
cublasStatus_t multiply(const ProductLibrary& library, const ProductPlan& plan, const GemmArgs& args, void* c,
                        const cublasLtMatmulAlgo_t& algorithm);

// Returns the algorithm that a product takes: the first proposal, or that of its shape, which is found by timing while
// ProductTiming is alive (ops/core/product_algorithms.h). The plan has a proposal. The caller holds the lock.
cublasLtMatmulAlgo_t algorithm_of(const ProductLibrary& library, const ProductKey& key,
                                  const ProductPlan& plan, const GemmArgs& args);

}  // namespace eddy::cuda
