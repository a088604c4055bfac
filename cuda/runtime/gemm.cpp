// Matrix products by cuBLASLt, each by one call or by several (product_plans.cuh). There is no kernel in this file.
//
// Which algorithm a product takes is that of its shape: the first that the library proposes, or one that was timed
// (product_algorithms.cpp). Split products add their partial sums in f32 from the workspace, in a fixed order.
#include "cuda/runtime/gemm.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "cuda/runtime/allocator.h"
#include "cuda/runtime/product_plans.cuh"
#include "cuda/runtime/stream.cuh"
#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

// "[4, 8] by [8, 2] of bf16 into f32, with a bias, with ReLU".
std::string in_words(const GemmArgs& g) {
  return fmt::format("[{}, {}] by [{}, {}] of {} into {}{}{}", g.m, g.k, g.k, g.n, dtype_name(g.dtype),
                     dtype_name(type_of_c(g)), g.bias == nullptr ? "" : ", with a bias",
                     g.relu ? ", with ReLU" : "");
}

// Runs one call of the library.
void run(const GemmArgs& g) {
  ProductLibrary& library = product_library();
  stream();  // opens the GPU
  const std::lock_guard lock(library.mutex);
  // Not from the pools: captured products contain this address, and it outlives every tensor.
  if (library.workspace == nullptr) library.workspace = allocate_backend_memory(kProductWorkspace);
  const ProductKey key = key_of(g);
  const ProductPlan& plan = plan_of(library, key);
  if (plan.proposals.empty())
    fail<DeviceError>(
        "gemm: cuBLASLt has no algorithm for {}, {} times, row strides {}, {}, {}, addresses aligned to "
        "{}, {}, {} bytes: {}",
        in_words(g), g.batch, g.lda, g.ldb, g.ldc, key.align_a, key.align_b, key.align_c,
        cublasLtGetStatusString(plan.status));
  check_lt(multiply(library, plan, g, g.c, algorithm_of(library, key, plan, g)), "cublasLtMatmul");
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
  ProductLibrary& library = product_library();
  const std::lock_guard lock(library.mutex);
  return std::all_of(calls.begin(), calls.end(), [&](const GemmArgs& g) {
    const bool multiplies_only = g.bias == nullptr && !g.relu && g.addend == nullptr;
    return (multiplies_only || !has_vector(g)) && !plan_of(library, key_of(g)).proposals.empty();
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
  ProductLibrary& library = product_library();
  const std::lock_guard lock(library.mutex);
  library.plans.clear();
  if (library.handle != nullptr) cublasLtDestroy(library.handle);
  if (library.workspace != nullptr) free_backend_memory(library.workspace, kProductWorkspace);
  library.handle = nullptr;
  library.workspace = nullptr;
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
