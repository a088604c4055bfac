// Plans of matrix products and their execution by cuBLASLt. There is no kernel in this file.
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
//
// A plan is what cuBLASLt needs for a product (descriptor, layouts, algorithm), made once per shape. The
// algorithm is the first that the library's heuristic proposes. It is not chosen by timing, because the
// choice, and with it the last bits, would change from run to run. Split products add their partial sums in
// f32 from the workspace, in a fixed order.
#include "cuda/runtime/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "cuda/runtime/allocator.h"
#include "cuda/runtime/stream.cuh"
#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // cuBLAS's own default on Hopper
constexpr std::size_t kMostPlans = 4096;  // then all are dropped: generation keeps making new shapes
constexpr std::int64_t kBiasAlignment = 16;

void check_lt(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail<DeviceError>("cuda: {}: {} (the command info of Eddy's program shows the version of cuBLASLt)", call,
                      cublasLtGetStatusString(status));
}

cudaDataType_t data_type(Dtype dtype) {
  return dtype == Dtype::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

Dtype type_of_c(const GemmArgs& args) {
  return args.c_f32 ? Dtype::f32 : args.dtype;
}

bool rounds_to_tf32(const GemmArgs& g) {
  return g.dtype == Dtype::f32 && g.precision != MatmulPrecision::f32;
}

// What identifies a product to cuBLASLt. Only 64-bit members, so there is no padding and equal keys have
// equal bytes.
struct Key {
  std::int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
  std::int64_t flags;                                  // types, transpositions, bias, TF32, ReLU
  std::int64_t align_a, align_b, align_c, align_bias;  // alignments of the addresses, in bytes

  friend bool operator==(const Key& a, const Key& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
};
static_assert(std::has_unique_object_representations_v<Key>);

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t words[sizeof(Key) / 8], hash = 0x9e3779b97f4a7c15u;
    std::memcpy(words, &key, sizeof key);
    for (const std::uint64_t word : words) hash = (std::rotl(hash, 23) ^ word) * 0xff51afd7ed558ccdu;
    return hash ^ (hash >> 32);
  }
};

struct DestroyDesc {
  void operator()(cublasLtMatmulDesc_t desc) const { cublasLtMatmulDescDestroy(desc); }
};
struct DestroyLayout {
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
};
struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyDesc>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference>;

struct Plan {
  Desc desc;
  Layout a, b, c;  // ours
  cublasLtMatmulAlgo_t algorithm;
  bool found = false;  // whether there is an algorithm; if not, `status` is what the heuristic said
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
};

struct State {
  std::mutex mutex;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::unordered_map<Key, Plan, KeyHash> plans;
};

State& state() {
  static State* const only = new State;
  return *only;
}

// Returns the largest power of two, up to 16, that divides an address and the distance to the next matrix.
// The library's fastest kernels need 16. A larger value would let the algorithm, and so the bits, depend on
// the address that a tensor happens to get.
std::int64_t alignment(const void* address, std::int64_t stride_bytes) {
  const std::uint64_t bits =
      reinterpret_cast<std::uintptr_t>(address) | static_cast<std::uint64_t>(stride_bytes) | 16;
  return std::int64_t{1} << std::countr_zero(bits);
}

Key key_of(const GemmArgs& g) {
  const auto in = static_cast<std::int64_t>(dtype_bytes(g.dtype));
  const auto out = static_cast<std::int64_t>(dtype_bytes(type_of_c(g)));
  const bool batched = g.batch > 1;
  Key key{};
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
  key.flags = (g.dtype == Dtype::bf16 ? 1 : 0) | (type_of_c(g) == Dtype::bf16 ? 2 : 0) |
              (g.transpose_a ? 4 : 0) | (g.transpose_b ? 8 : 0) | (g.bias != nullptr ? 16 : 0) |
              (rounds_to_tf32(g) ? 32 : 0) | (g.relu ? 64 : 0);
  key.align_a = alignment(g.a, key.stride_a * in);
  key.align_b = alignment(g.b, key.stride_b * in);
  key.align_c = std::min(alignment(g.c, key.stride_c * out), alignment(g.addend, 0));
  key.align_bias = g.bias == nullptr ? 0 : alignment(g.bias, 0);
  return key;
}

template <class T>
void set(const Desc& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_lt(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value),
           "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check_lt(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
           "cublasLtMatmulPreferenceSetAttribute");
}

// The layout of a stored matrix of `rows` rows of `columns`: read by columns it has `columns` rows.
Layout layout(Dtype dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
              std::int64_t batch, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_lt(cublasLtMatrixLayoutCreate(&made, data_type(dtype), static_cast<std::uint64_t>(columns),
                                      static_cast<std::uint64_t>(rows), row_stride),
           "cublasLtMatrixLayoutCreate");
  Layout result(made);
  const auto count = static_cast<std::int32_t>(batch);
  check_lt(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
           "cublasLtMatrixLayoutSetAttribute");
  check_lt(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                            sizeof stride),
           "cublasLtMatrixLayoutSetAttribute");
  return result;
}

std::uint32_t epilogue_of(const GemmArgs& g) {
  const bool biased = g.bias != nullptr;
  if (!g.relu) return biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  return biased ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
}

// Returns an address with this alignment. The heuristic looks only at the alignment of the vectors beside the
// matrices, so the plan is the same whichever tensor comes first.
const void* aligned_like(std::int64_t alignment) {
  return reinterpret_cast<const void*>((std::uintptr_t{1} << 20) + static_cast<std::uintptr_t>(alignment));
}

Plan make_plan(State& s, const GemmArgs& g, const Key& key) {
  Plan plan;
  cublasLtMatmulDesc_t desc = nullptr;
  const cublasComputeType_t compute = rounds_to_tf32(g) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check_lt(cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  plan.desc.reset(desc);
  // cuBLASLt's first operand is our B.
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
  if (const std::uint32_t epilogue = epilogue_of(g); epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (g.bias != nullptr) {
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{data_type(type_of_c(g))});
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned_like(key.align_bias));
  }
  plan.a = g.transpose_a ? layout(g.dtype, g.k, g.m, g.lda, g.batch, key.stride_a)
                         : layout(g.dtype, g.m, g.k, g.lda, g.batch, key.stride_a);
  plan.b = g.transpose_b ? layout(g.dtype, g.n, g.k, g.ldb, g.batch, key.stride_b)
                         : layout(g.dtype, g.k, g.n, g.ldb, g.batch, key.stride_b);
  plan.c = layout(type_of_c(g), g.m, g.n, g.ldc, g.batch, key.stride_c);

  cublasLtMatmulPreference_t made = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspace});
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
      cublasLtMatmulAlgoGetHeuristic(s.handle, plan.desc.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                     plan.c.get(), preference.get(), kAsked, proposals, &found);
  for (int i = 0; plan.status == CUBLAS_STATUS_SUCCESS && i < found && !plan.found; ++i) {
    if (proposals[i].state != CUBLAS_STATUS_SUCCESS || proposals[i].workspaceSize > kWorkspace) continue;
    plan.algorithm = proposals[i].algo;
    plan.found = true;
  }
  return plan;
}

// Returns the plan of a product, made when its key is new. The caller holds the lock.
const Plan& plan_of(State& s, const GemmArgs& g, const Key& key) {
  if (s.handle == nullptr) check_lt(cublasLtCreate(&s.handle), "cublasLtCreate");
  auto found = s.plans.find(key);
  if (found == s.plans.end()) {
    if (s.plans.size() >= kMostPlans) s.plans.clear();
    found = s.plans.emplace(key, make_plan(s, g, key)).first;
  }
  return found->second;
}

// "[4, 8] by [8, 2] of bf16 into f32, with a bias, with ReLU".
std::string in_words(const GemmArgs& g) {
  return fmt::format("[{}, {}] by [{}, {}] of {} into {}{}{}", g.m, g.k, g.k, g.n, dtype_name(g.dtype),
                     dtype_name(type_of_c(g)), g.bias == nullptr ? "" : ", with a bias",
                     g.relu ? ", with ReLU" : "");
}

// Runs one call of the library.
void run(const GemmArgs& g) {
  State& s = state();
  const cudaStream_t queue = stream();
  const std::lock_guard lock(s.mutex);
  // Not from the pools: captured products contain this address, and it outlives every tensor.
  if (kWorkspace > 0 && s.workspace == nullptr) s.workspace = allocate_backend_memory(kWorkspace);
  const Key key = key_of(g);
  const Plan& plan = plan_of(s, g, key);
  if (!plan.found)
    fail<DeviceError>(
        "gemm: cuBLASLt has no algorithm for {}, {} times, row strides {}, {}, {}, addresses aligned to "
        "{}, {}, {} bytes: {}",
        in_words(g), g.batch, g.lda, g.ldb, g.ldc, key.align_a, key.align_b, key.align_c,
        cublasLtGetStatusString(plan.status));
  if (g.bias != nullptr) set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  const float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
  check_lt(cublasLtMatmul(s.handle, plan.desc.get(), &alpha, g.b, plan.b.get(), g.a, plan.a.get(), &beta,
                          g.addend != nullptr ? g.addend : g.c, plan.c.get(), g.c, plan.c.get(),
                          &plan.algorithm, s.workspace, kWorkspace, queue),
           "cublasLtMatmul");
  check_launch("gemm");
}

// Returns the product with its operands so many elements further on.
GemmArgs moved(GemmArgs g, std::int64_t a, std::int64_t b, std::int64_t c) {
  const auto in = static_cast<std::int64_t>(dtype_bytes(g.dtype)),
             out = static_cast<std::int64_t>(dtype_bytes(type_of_c(g)));
  g.a = static_cast<const char*>(g.a) + a * in;
  g.b = static_cast<const char*>(g.b) + b * in;
  g.c = static_cast<char*>(g.c) + c * out;
  if (g.addend != nullptr) g.addend = static_cast<const char*>(g.addend) + c * out;
  return g;
}

// The calls that compute one strided batch, one after the other.
struct Calls {
  GemmArgs at[4];
  int count = 0;

  void add(const GemmArgs& g) { at[count++] = g; }
  const GemmArgs* begin() const { return at; }
  const GemmArgs* end() const { return at + count; }
};

// The rest of a side beyond a multiple of 8, but 9 in place of 1, because no bias is added to a vector (has_vector). 0
// where the rest would be all of it.
std::int64_t rest_of(std::int64_t side) {
  const std::int64_t rest = side % 8 == 1 ? 9 : side % 8;
  return rest < side ? rest : 0;
}

// The library's kernels for Hopper take contiguous sides that are multiples of 8 numbers of bf16; for others it takes
// kernels of older GPUs with a fifth of their rate. So a large product with another side is run as two, of the multiple
// and of the rest.
void divide_by_eights(const GemmArgs& g, Calls& calls) {
  constexpr double kLarge = 2e9;  // operations, from which on this saves more than a launch takes
  if (g.dtype != Dtype::bf16 || g.batch != 1 ||
      2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) < kLarge)
    return calls.add(g);
  GemmArgs most = g;
  if (const std::int64_t rest = rest_of(g.n); rest != 0) {
    most.n = g.n - rest;
    GemmArgs few = moved(g, 0, most.n * (g.transpose_b ? g.ldb : 1), most.n);
    few.n = rest;
    if (g.bias != nullptr)
      few.bias =
          static_cast<const char*>(g.bias) + most.n * static_cast<std::int64_t>(dtype_bytes(type_of_c(g)));
    calls.add(few);
    return divide_by_eights(most, calls);
  }
  if (const std::int64_t rest = rest_of(g.m); rest != 0 && g.transpose_a) {
    most.m = g.m - rest;
    GemmArgs few = moved(g, most.m, 0, most.m * g.ldc);
    few.m = rest;
    calls.add(few);
    return divide_by_eights(most, calls);
  }
  const bool along_k = !g.transpose_a || g.transpose_b, adds_alone = g.bias == nullptr && !g.relu;
  if (const std::int64_t rest = rest_of(g.k); rest != 0 && along_k && adds_alone) {
    most.k = g.k - rest;
    GemmArgs few = moved(g, most.k * (g.transpose_a ? g.lda : 1), most.k * (g.transpose_b ? 1 : g.ldb), 0);
    few.k = rest;
    calls.add(few);
    most.addend = nullptr;
    most.beta = 1;
  }
  calls.add(most);
}

// Returns whether a factor is a vector. The library has kernels of another kind for such products, which are left to
// multiply only.
bool has_vector(const GemmArgs& g) {
  return g.k == 1 || g.n == 1;
}

// Returns whether cuBLASLt has an algorithm for each of the calls, which are run with the same keys.
bool all_found(const Calls& calls) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return std::all_of(calls.begin(), calls.end(), [&](const GemmArgs& g) {
    const bool multiplies_only = g.bias == nullptr && !g.relu && g.addend == nullptr;
    return (multiplies_only || !has_vector(g)) && plan_of(s, g, key_of(g)).found;
  });
}

Calls calls_for(const GemmArgs& g) {
  Calls calls;
  divide_by_eights(g, calls);
  if (calls.count == 1 || all_found(calls)) return calls;
  Calls whole;
  whole.add(g);
  return whole;
}

// Sets every row of C to the bias. Each copy doubles the rows that have it.
void start_with_bias(const GemmArgs& g) {
  const std::size_t element = dtype_bytes(type_of_c(g)), row = static_cast<std::size_t>(g.n) * element,
                    pitch = static_cast<std::size_t>(g.ldc) * element;
  for (std::int64_t matrix = 0; matrix < g.batch; ++matrix) {
    char* const c = static_cast<char*>(moved(g, 0, 0, matrix * g.stride_c).c);
    check(cudaMemcpyAsync(c, g.bias, row, cudaMemcpyDeviceToDevice, stream()), "cudaMemcpyAsync");
    for (std::int64_t done = 1; done < g.m; done *= 2)
      check(cudaMemcpy2DAsync(c + static_cast<std::size_t>(done) * pitch, pitch, c, pitch, row,
                              static_cast<std::size_t>(std::min(done, g.m - done)), cudaMemcpyDeviceToDevice,
                              stream()),
            "cudaMemcpy2DAsync");
  }
}

// A product to which nothing is added in its call: the bias comes first, and ReLU last, by a kernel of its own.
void run_apart(GemmArgs g) {
  if (g.bias != nullptr) {
    start_with_bias(g);
    g.bias = nullptr;
    g.beta = 1;
  }
  const bool clips = std::exchange(g.relu, false);
  for (const GemmArgs& call : calls_for(g)) run(call);
  if (!clips) return;
  const std::int64_t together = g.ldc == g.n ? g.m : 1;  // rows that lie one behind the other
  for (std::int64_t matrix = 0; matrix < g.batch; ++matrix)
    for (std::int64_t row = 0; row < g.m; row += together) {
      void* const c = moved(g, 0, 0, matrix * g.stride_c + row * g.ldc).c;
      unary_forward_slot({DeviceType::cuda, device_index()},
                         {pointwise::kReluIndex, type_of_c(g), together * g.n, c, nullptr, c});
    }
}

// Runs one strided batch.
void run_batch(const GemmArgs& g) {
  const Calls calls = calls_for(g);
  if ((g.bias != nullptr || g.relu) && !all_found(calls)) return run_apart(g);
  for (const GemmArgs& call : calls) run(call);
}

// Returns whether a product that adds takes less time than a plain one and a kernel beside it. In f32 the product takes
// ten times as long and the kernel does not matter.
bool wins(const GemmArgs& g) {
  return g.dtype == Dtype::bf16 || rounds_to_tf32(g);
}

// Returns whether there is an algorithm for a product that adds.
bool fits(GemmArgs g) {
  if (g.k == 0 || g.m * g.n == 0 || g.batch * g.outer != 1 || has_vector(g)) return false;
  if (g.bias != nullptr) g.bias = aligned_like(kBiasAlignment);  // gemm copies one that is not
  const bool found = all_found(calls_for(g));
  if (!found)
    add_warning(
        "cuBLASLt has no algorithm for some products that also add the residual stream: separate kernels do that");
  return found;
}

// Returns the product with the longer of its two batch levels as the strided batch of one call; the other
// level costs a call per matrix.
GemmArgs arranged(GemmArgs g) {
  const bool one_level = g.outer_a == g.batch * g.stride_a && g.outer_b == g.batch * g.stride_b &&
                         g.outer_c == g.batch * g.stride_c;
  if (g.outer > 1 && (one_level || g.batch == 1)) {
    if (g.batch == 1) {
      g.stride_a = g.outer_a;
      g.stride_b = g.outer_b;
      g.stride_c = g.outer_c;
    }
    g.batch *= g.outer;
    g.outer = 1;
  } else if (g.outer > g.batch) {
    std::swap(g.outer, g.batch);
    std::swap(g.outer_a, g.stride_a);
    std::swap(g.outer_b, g.stride_b);
    std::swap(g.outer_c, g.stride_c);
  }
  return g;
}

// A strided batch with k = 0: C stays as it is for beta 1, else it becomes 0 or the bias.
void clear(const GemmArgs& g) {
  if (g.beta == 1) return;
  if (g.bias != nullptr) return start_with_bias(g);
  const std::size_t element = dtype_bytes(type_of_c(g));
  for (std::int64_t matrix = 0; matrix < g.batch; ++matrix)
    check(
        cudaMemset2DAsync(moved(g, 0, 0, matrix * g.stride_c).c, static_cast<std::size_t>(g.ldc) * element, 0,
                          static_cast<std::size_t>(g.n) * element, static_cast<std::size_t>(g.m), stream()),
        "cudaMemset2DAsync");
}

// Returns the bias, or a copy that is aligned. Some algorithms read it 16 bytes at a time, and the heuristic
// is told the alignment of the matrices only. `copy` keeps it alive until the product is enqueued.
const void* aligned_bias(const GemmArgs& g, Tensor* copy) {
  const void* const bias = g.bias;
  if (bias == nullptr || reinterpret_cast<std::uintptr_t>(bias) % kBiasAlignment == 0) return bias;
  *copy = Tensor::empty({g.n}, type_of_c(g), {DeviceType::cuda, device_index()});
  check(cudaMemcpyAsync(copy->raw_data(), bias, static_cast<std::size_t>(copy->bytes()),
                        cudaMemcpyDeviceToDevice, stream()),
        "cudaMemcpyAsync");
  return copy->raw_data();
}

void check_types(const GemmArgs& g) {
  const Dtype in = g.dtype, out = type_of_c(g);
  const bool known = (in == Dtype::f32 && out == Dtype::f32) ||
                     (in == Dtype::bf16 && (out == Dtype::f32 || out == Dtype::bf16));
  if (!known)
    fail<DtypeError>("gemm: {} into {} on cuda (f32 into f32, or bf16 into f32 or bf16)", dtype_name(in),
                     dtype_name(out));
}

}  // namespace

void gemm(const GemmArgs& args) {
  check_types(args);
  if (args.m == 0 || args.n == 0 || args.batch * args.outer == 0) return;
  Tensor copy;
  GemmArgs g = arranged(args);
  g.bias = aligned_bias(args, &copy);
  const std::int64_t outer = std::exchange(g.outer, 1);
  for (std::int64_t i = 0; i < outer; ++i) {
    const GemmArgs part = moved(g, i * g.outer_a, i * g.outer_b, i * g.outer_c);
    if (part.k == 0)
      clear(part);
    else
      run_batch(part);
  }
}

void forget_product_plans() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.plans.clear();
  if (s.handle != nullptr) cublasLtDestroy(s.handle);
  if (s.workspace != nullptr) free_backend_memory(s.workspace, kWorkspace);
  s.handle = nullptr;
  s.workspace = nullptr;
}

std::string product_library_version() {
  const std::size_t version = cublasLtGetVersion();  // 130002 is 13.0.2
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void product_supports(const ProductSupportQuery& query) {
  const auto [kernel, asked] = kernel_choice(KernelOp::products);
  const bool wanted = query.product == nullptr || asked || wins(*query.product);
  *query.fits = kernel == Kernel::fused && wanted && (query.product == nullptr || fits(*query.product));
}

}  // namespace eddy::cuda
