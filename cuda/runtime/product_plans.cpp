// Plans of matrix products, from the shape alone.
#include "cuda/runtime/product_plans.cuh"

#include <algorithm>
#include <bit>

#include "cuda/runtime/stream.cuh"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

constexpr std::size_t kMostPlans = 4096;  // then all are dropped: generation keeps making new shapes

struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference>;

cudaDataType_t data_type(Dtype dtype) {
  return dtype == Dtype::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

Dtype input_type(const ProductKey& key) {
  return key.has(kFromBf16) ? Dtype::bf16 : Dtype::f32;
}
Dtype output_type(const ProductKey& key) {
  return key.has(kIntoBf16) ? Dtype::bf16 : Dtype::f32;
}

// Returns the largest power of two, up to 16, that divides an address and the distance to the next matrix.
// The library's fastest kernels need 16. A larger value would let the algorithm, and so the bits, depend on
// the address that a tensor happens to get.
std::int64_t alignment(const void* address, std::int64_t stride_bytes) {
  const std::uint64_t bits =
      reinterpret_cast<std::uintptr_t>(address) | static_cast<std::uint64_t>(stride_bytes) | 16;
  return std::int64_t{1} << std::countr_zero(bits);
}

template <class T>
void set(const ProductDesc& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_lt(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value),
           "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check_lt(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
           "cublasLtMatmulPreferenceSetAttribute");
}

// The layout of a stored matrix of `rows` rows of `columns`: read by columns it has `columns` rows.
ProductLayout layout(Dtype dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                     std::int64_t batch, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_lt(cublasLtMatrixLayoutCreate(&made, data_type(dtype), static_cast<std::uint64_t>(columns),
                                      static_cast<std::uint64_t>(rows), row_stride),
           "cublasLtMatrixLayoutCreate");
  ProductLayout result(made);
  const auto count = static_cast<std::int32_t>(batch);
  check_lt(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
           "cublasLtMatrixLayoutSetAttribute");
  check_lt(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                            sizeof stride),
           "cublasLtMatrixLayoutSetAttribute");
  return result;
}

std::uint32_t epilogue_of(const ProductKey& key) {
  const bool biased = key.has(kWithBias);
  if (!key.has(kWithRelu)) return biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  return biased ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
}

ProductPlan make_plan(const ProductLibrary& library, const ProductKey& key) {
  ProductPlan plan;
  const Dtype in = input_type(key), out = output_type(key);
  const bool transpose_a = key.has(kTransposedA), transpose_b = key.has(kTransposedB);
  cublasLtMatmulDesc_t desc = nullptr;
  const cublasComputeType_t compute = key.has(kInTf32) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check_lt(cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  plan.desc.reset(desc);
  // cuBLASLt's first operand is our B.
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
  if (const std::uint32_t epilogue = epilogue_of(key); epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (key.has(kWithBias)) {
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{data_type(out)});
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned_like(key.align_bias));
  }
  plan.a = transpose_a ? layout(in, key.k, key.m, key.lda, key.batch, key.stride_a)
                       : layout(in, key.m, key.k, key.lda, key.batch, key.stride_a);
  plan.b = transpose_b ? layout(in, key.n, key.k, key.ldb, key.batch, key.stride_b)
                       : layout(in, key.k, key.n, key.ldb, key.batch, key.stride_b);
  plan.c = layout(out, key.m, key.n, key.ldc, key.batch, key.stride_c);

  cublasLtMatmulPreference_t made = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kProductWorkspace});
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.align_b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.align_a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.align_c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.align_c));

  constexpr int kAsked = 8;
  cublasLtMatmulHeuristicResult_t proposals[kAsked];
  int found = 0;
  plan.status =
      cublasLtMatmulAlgoGetHeuristic(library.handle, plan.desc.get(), plan.b.get(), plan.a.get(),
                                     plan.c.get(), plan.c.get(), preference.get(), kAsked, proposals, &found);
  for (int i = 0; plan.status == CUBLAS_STATUS_SUCCESS && i < found; ++i)
    if (proposals[i].state == CUBLAS_STATUS_SUCCESS && proposals[i].workspaceSize <= kProductWorkspace)
      plan.proposals.push_back(proposals[i].algo);
  return plan;
}

}  // namespace

std::size_t ProductKeyHash::operator()(const ProductKey& key) const {
  std::uint64_t words[sizeof(ProductKey) / 8], hash = 0x9e3779b97f4a7c15u;
  std::memcpy(words, &key, sizeof key);
  for (const std::uint64_t word : words) hash = (std::rotl(hash, 23) ^ word) * 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 32);
}

ProductLibrary& product_library() {
  static ProductLibrary* const only = new ProductLibrary;
  return *only;
}

void check_lt(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail<DeviceError>("cuda: {}: {} (the command info of Eddy's program shows the version of cuBLASLt)", call,
                      cublasLtGetStatusString(status));
}

Dtype type_of_c(const GemmArgs& args) {
  return args.c_f32 ? Dtype::f32 : args.dtype;
}

bool rounds_to_tf32(const GemmArgs& g) {
  return g.dtype == Dtype::f32 && g.precision != MatmulPrecision::f32;
}

const void* aligned_like(std::int64_t alignment) {
  return reinterpret_cast<const void*>((std::uintptr_t{1} << 20) + static_cast<std::uintptr_t>(alignment));
}

ProductKey key_of(const GemmArgs& g) {
  const auto in = static_cast<std::int64_t>(dtype_bytes(g.dtype));
  const auto out = static_cast<std::int64_t>(dtype_bytes(type_of_c(g)));
  const bool batched = g.batch > 1;
  ProductKey key{};
  key.m = g.m;
  key.n = g.n;
  key.k = g.k;
  key.lda = g.lda;
  key.ldb = g.ldb;
  key.ldc = g.ldc;
  key.batch = g.batch;
  key.stride_a = batched ? g.stride_a : 0;
  key.stride_b = batched ? g.stride_b : 0;
  key.stride_c = batched ? g.stride_c : 0;
  key.flags = (g.dtype == Dtype::bf16 ? kFromBf16 : 0) | (type_of_c(g) == Dtype::bf16 ? kIntoBf16 : 0) |
              (g.transpose_a ? kTransposedA : 0) | (g.transpose_b ? kTransposedB : 0) |
              (g.bias != nullptr ? kWithBias : 0) | (rounds_to_tf32(g) ? kInTf32 : 0) |
              (g.relu ? kWithRelu : 0);
  key.align_a = alignment(g.a, key.stride_a * in);
  key.align_b = alignment(g.b, key.stride_b * in);
  key.align_c = std::min(alignment(g.c, key.stride_c * out), alignment(g.addend, 0));
  key.align_bias = g.bias == nullptr ? 0 : alignment(g.bias, 0);
  return key;
}

ProductPlan& plan_of(ProductLibrary& library, const ProductKey& key) {
  if (library.handle == nullptr) check_lt(cublasLtCreate(&library.handle), "cublasLtCreate");
  auto found = library.plans.find(key);
  if (found == library.plans.end()) {
    if (library.plans.size() >= kMostPlans) library.plans.clear();
    found = library.plans.emplace(key, make_plan(library, key)).first;
  }
  return found->second;
}

cublasStatus_t multiply(const ProductLibrary& library, const ProductPlan& plan, const GemmArgs& g, void* c,
                        const cublasLtMatmulAlgo_t& algorithm) {
  if (g.bias != nullptr) set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  const float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
  return cublasLtMatmul(library.handle, plan.desc.get(), &alpha, g.b, plan.b.get(), g.a, plan.a.get(), &beta,
                        g.addend != nullptr ? g.addend : g.c, plan.c.get(), c, plan.c.get(), &algorithm,
                        library.workspace, kProductWorkspace, stream());
}

}  // namespace eddy::cuda
