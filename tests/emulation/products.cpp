// cuBLASLt's products by those of the CPU, with its layouts, epilogues and rounding of inputs as documented.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/product/blas.h"
#include "tensor/base/dtype.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/include/cublasLt.h"

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;
using Desc = cublasLtMatmulDescOpaque_t;

float number_at(const void* data, std::int32_t type, std::int64_t at) {
  return type == CUDA_R_32F ? static_cast<const float*>(data)[at]
                            : static_cast<float>(static_cast<const eddy::bf16*>(data)[at]);
}

// Rounds to 10 bits of mantissa, ties away from zero.
float tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + 0x1000u) & 0xffffe000u);
}

// Reads one matrix of a batch, by columns without gaps.
std::vector<float> read(const void* data, const Layout& layout, std::int64_t batch, bool rounded) {
  std::vector<float> values(layout.rows * layout.columns);
  for (std::uint64_t column = 0; column < layout.columns; ++column)
    for (std::uint64_t row = 0; row < layout.rows; ++row) {
      const float x = number_at(data, layout.type,
                                batch * layout.stride + static_cast<std::int64_t>(row) +
                                    static_cast<std::int64_t>(column) * layout.column_stride);
      values[row + column * layout.rows] = rounded ? tf32(x) : x;
    }
  return values;
}

bool has_bias(const Desc& desc) {
  return (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}
bool clips(const Desc& desc) {
  return (desc.epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
}

std::uint32_t refused_epilogue = 0;
std::size_t library_version = 130000;
std::vector<emulation::Proposal> proposed(1);

// An algorithm's words: the version of the library, and the proposal.
cublasLtMatmulAlgo_t algorithm_of(const emulation::Proposal& proposal) {
  return {{library_version, std::bit_cast<std::uint64_t>(proposal.ms), proposal.splits, proposal.fails}};
}
emulation::Proposal proposal_of(const cublasLtMatmulAlgo_t& algorithm) {
  return {std::bit_cast<double>(algorithm.data[1]), algorithm.data[2] != 0, algorithm.data[3] != 0};
}

// Returns whether the arguments beside the matrices satisfy the documentation. Vectors must be aligned to 16
// bytes here: the library may choose kernels that access so many bytes at a time and fail on other addresses.
bool allowed(const Desc& desc, const Layout& d) {
  switch (desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
      break;
    default:
      return false;
  }
  const auto aligned = [](const void* address) {
    return address != nullptr && reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
  };
  return !has_bias(desc) || (aligned(desc.bias) && desc.bias_type == d.type);
}

void store_number(void* data, std::int32_t type, std::int64_t at, float x) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[at] = x;
  else
    static_cast<eddy::bf16*>(data)[at] = eddy::bf16(x);
}

struct Call {
  Desc desc;
  Layout a, b, d;
  const void *at_a, *at_b, *at_c;
  void* at_d;
  float alpha, beta;
  emulation::Proposal by;
};

void multiply(const Call& call) {
  const Desc& desc = call.desc;
  const bool rounded = desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const int m = static_cast<int>(call.d.rows), n = static_cast<int>(call.d.columns);
  const int k = static_cast<int>(desc.transpose_a ? call.a.rows : call.a.columns);
  for (std::int64_t batch = 0; batch < call.d.batch; ++batch) {
    const std::vector<float> a = read(call.at_a, call.a, batch, rounded),
                             b = read(call.at_b, call.b, batch, rounded);
    std::vector<float> d(call.d.rows * call.d.columns);
    if (call.beta != 0) d = read(call.at_c, call.d, batch, false);
    // By columns D = op(A) op(B); by rows the same bytes are D^T = op(B)^T op(A)^T.
    eddy::detail::GemmArgs g{};
    g.dtype = eddy::Dtype::f32;
    g.transpose_a = desc.transpose_b;
    g.transpose_b = desc.transpose_a;
    g.lda = static_cast<std::int64_t>(call.b.rows);
    g.ldb = static_cast<std::int64_t>(call.a.rows);
    g.ldc = m;
    g.alpha = static_cast<double>(call.alpha);
    g.beta = static_cast<double>(call.beta);
    const auto add_terms = [&](std::int64_t from, std::int64_t to) {
      g.k = to - from;
      eddy::detail::multiply_by_blas(g, n, m, b.data() + from * (g.transpose_a ? g.lda : 1),
                                     a.data() + from * (g.transpose_b ? 1 : g.ldb), d.data());
      g.beta = 1;
    };
    const std::int64_t half = call.by.splits && k > 1 ? k / 2 : k;
    add_terms(0, half);
    if (half < k) add_terms(half, k);
    for (std::int64_t column = 0; column < n; ++column)
      for (std::int64_t row = 0; row < m; ++row) {
        float x = d[static_cast<std::size_t>(row + column * m)];
        if (has_bias(desc)) x += number_at(desc.bias, desc.bias_type, row);
        // Documented as max(x, 0), which leaves NaN open; here NaN is lost.
        if (clips(desc)) x = std::fmax(x, 0.0f);
        store_number(call.at_d, call.d.type, batch * call.d.stride + row + column * call.d.column_stride, x);
      }
  }
}

// Returns whether all rows of ours, its columns, begin at multiples of 16 bytes.
bool aligned_rows(const void* address, const Layout& x) {
  const auto fits = [bytes = x.type == CUDA_R_32F ? 4 : 2](std::int64_t elements) {
    return elements * bytes % 16 == 0;
  };
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0 && (x.columns == 1 || fits(x.column_stride)) &&
         (x.batch == 1 || fits(x.stride));
}

std::map<std::string, std::int64_t> unaligned;

// Our A is the call's b.
void note_alignment(const Call& call) {
  if (aligned_rows(call.at_a, call.a) && aligned_rows(call.at_b, call.b) && aligned_rows(call.at_c, call.d) &&
      aligned_rows(call.at_d, call.d))
    return;
  const auto k = static_cast<std::int64_t>(call.desc.transpose_a ? call.a.rows : call.a.columns);
  ++unaligned[fmt::format("[{}, {}] by [{}, {}], row strides {}, {}, {}{}", call.d.columns, k, k, call.d.rows,
                          call.b.column_stride, call.a.column_stride, call.d.column_stride,
                          call.d.type == CUDA_R_32F ? ", into f32" : "")];
}

cublasStatus_t store(void* to, std::size_t size, const void* value, std::size_t bytes) {
  if (bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

void emulation::refuse_epilogue(std::uint32_t epilogue) {
  refused_epilogue = epilogue;
}
void emulation::propose(std::vector<Proposal> proposals) {
  proposed = std::move(proposals);
  if (proposed.empty()) proposed.resize(1);
}
void emulation::set_library_version(std::size_t version) {
  library_version = version;
}
std::size_t cublasLtGetVersion() {
  return library_version;
}
std::map<std::string, std::int64_t> emulation::unaligned_products() {
  return unaligned;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return store(&desc->transpose_a, sizeof desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return store(&desc->transpose_b, sizeof desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return store(&desc->epilogue, sizeof desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return store(&desc->bias_type, sizeof desc->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return store(&desc->bias, sizeof desc->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
             ? store(&layout->batch, sizeof layout->batch, value, bytes)
             : store(&layout->stride, sizeof layout->stride, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  std::uint64_t bytes_of_workspace = 0;
  std::uint32_t other = 0;
  return attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
             ? store(&bytes_of_workspace, sizeof bytes_of_workspace, value, bytes)
             : store(&other, sizeof other, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int asked,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  const std::uint64_t m = desc->transpose_a ? a->columns : a->rows,
                      k = desc->transpose_a ? a->rows : a->columns;
  const std::uint64_t also_k = desc->transpose_b ? b->columns : b->rows,
                      n = desc->transpose_b ? b->rows : b->columns;
  const bool fit = asked > 0 && k == also_k && m == c->rows && n == c->columns && a->batch == c->batch &&
                   b->batch == c->batch && a->type == b->type;
  if (!fit) return CUBLAS_STATUS_INVALID_VALUE;
  if (!allowed(*desc, *c) || desc->epilogue == refused_epilogue) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Whether the library's kernels for vectors have epilogues is nowhere said.
  if ((m == 1 || k == 1) && desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const emulation::Proposal& proposal : proposed)
    if (*found < asked) results[(*found)++] = {algorithm_of(proposal), 0, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  *result = {*algorithm, 0, CUBLAS_STATUS_SUCCESS};
  return algorithm->data[0] == library_version ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algorithm, void*,
                              std::size_t, cudaStream_t stream) {
  if (algorithm->data[0] != library_version) return CUBLAS_STATUS_INVALID_VALUE;
  const emulation::Proposal by = proposal_of(*algorithm);
  if (layout_c != layout_d || !allowed(*desc, *layout_d) || by.fails) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Call call{*desc,
                  *layout_a,
                  *layout_b,
                  *layout_d,
                  a,
                  b,
                  c,
                  d,
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  by};
  note_alignment(call);
  emulation::submit(stream, [call] {
    emulation::count_launch("product");
    emulation::spend(call.by.ms);
    if (!emulation::counts_only()) multiply(call);
  });
  return CUBLAS_STATUS_SUCCESS;
}
