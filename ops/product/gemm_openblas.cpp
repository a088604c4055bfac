// Products on the CPU: small ones by the library's own kernel (gemm_small.h), others by OpenBLAS, which runs
// each piece on one thread of the library's pool. A large product is cut into row (or column) blocks whose
// sizes depend on the shape alone, so results do not depend on the number of threads.
#include <cblas.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cpu/isa.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/gemm.h"
#include "ops/product/gemm_small.h"
#include "ops/product/packed_gemm.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {

namespace {

// Pieces below this many multiply-adds cost more to hand out than to compute.
constexpr std::int64_t kSmallPiece = 1 << 18;
// Rows of a block: OpenBLAS packs B again for every block, which costs some 1/rows of the product.
constexpr std::int64_t kBlockRows = 256;
// Elements of C that one thread writes the bias into at a time.
constexpr std::int64_t kBiasElements = 1 << 15;

// OpenBLAS packs operands into a buffer of its own for each thread that is inside a product, and keeps it.
// Where the system refuses the memory it tries again for ever, so the system is asked here first.
// 128 MiB: BUFFER_SIZE (32 << 22) of OpenBLAS on x86-64 and ARM64; measured with 0.3.21, by the growth of the
// address space at a first product. Pages that are not used take no memory.
constexpr std::size_t kBufferBytes = std::size_t{128} << 20;
// A limit that would do leaves each thread room for its stack and malloc's arena (8 and 64 MiB), and the rest
// of a small run 128 MiB.
constexpr std::size_t kThreadBytes = std::size_t{72} << 20, kSmallRunBytes = std::size_t{128} << 20;
// More threads than this share buffers taken early; OpenBLAS's table has at least two places for each of 64.
constexpr int kMaxBuffers = 64;

extern "C" {
// Exported by OpenBLAS: take and return one buffer.
void* blas_memory_alloc(int position) __attribute__((weak));
void blas_memory_free(void* buffer) __attribute__((weak));
}

std::atomic<int> threads_with_buffers{0};

// Bytes of this process's address space; 0 when the system does not say.
std::size_t address_space_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

[[noreturn]] void refuse_memory_limit(int threads) {
  const auto count = static_cast<std::size_t>(threads);
  const std::size_t enough = address_space_bytes() + count * (kBufferBytes + kThreadBytes) + kSmallRunBytes;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  const std::string found = limit.rlim_cur == RLIM_INFINITY
                                ? "the system refuses it"
                                : fmt::format("the limit is {} KiB", limit.rlim_cur >> 10);
  fail<OutOfMemoryError>(
      "memory: products on {} threads need {} MiB of virtual memory for OpenBLAS, and {} (ulimit -v {} would "
      "do, with more for a large model{})",
      threads, count * (kBufferBytes >> 20), found, (enough >> 10) + 1,
      threads > 1 ? "; fewer threads need less: --threads 1" : "");
}

// max(C, 0) over a piece that this thread has just written and its cache still holds.
void apply_relu(const GemmArgs& g, std::int64_t m, std::int64_t n, void* c) {
  const bool adjacent = g.ldc == n;
  const std::int64_t runs = adjacent ? 1 : m, length = adjacent ? m * n : n,
                     step = g.ldc * static_cast<std::int64_t>(dtype_bytes(g.dtype));
  for (std::int64_t i = 0; i < runs; ++i) {
    void* const run = static_cast<char*>(c) + i * step;
    unary_forward_slot(kCpu, {pointwise::kReluIndex, g.dtype, length, run, nullptr, run});
  }
}

void multiply(const GemmArgs& g, std::int64_t m, std::int64_t n, const void* a, const void* b, void* c) {
  const auto int_of = [](std::int64_t x) { return static_cast<blasint>(x); };
  const CBLAS_TRANSPOSE ta = g.transpose_a ? CblasTrans : CblasNoTrans,
                        tb = g.transpose_b ? CblasTrans : CblasNoTrans;
  if (g.dtype == Dtype::f32) {
    cblas_sgemm(CblasRowMajor, ta, tb, int_of(m), int_of(n), int_of(g.k), static_cast<float>(g.alpha),
                static_cast<const float*>(a), int_of(g.lda), static_cast<const float*>(b), int_of(g.ldb),
                static_cast<float>(g.beta), static_cast<float*>(c), int_of(g.ldc));
  } else {
    cblas_dgemm(CblasRowMajor, ta, tb, int_of(m), int_of(n), int_of(g.k), g.alpha,
                static_cast<const double*>(a), int_of(g.lda), static_cast<const double*>(b), int_of(g.ldb),
                g.beta, static_cast<double*>(c), int_of(g.ldc));
  }
  if (g.relu) apply_relu(g, m, n, c);
}

// One matrix of the batch, cut along its longer side.
void multiply_in_blocks(const GemmArgs& g) {
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(g.dtype));
  const auto at = [bytes](const void* base, std::int64_t elements) {
    return static_cast<const char*>(base) + elements * bytes;
  };
  const bool by_rows = g.m >= g.n;
  const std::int64_t length = by_rows ? g.m : g.n;
  // At least two pieces, each of at most kBlockRows and equally long to a multiple of 16.
  const std::int64_t pieces = std::max<std::int64_t>(2, (length + kBlockRows - 1) / kBlockRows);
  const std::int64_t piece = ((length + pieces - 1) / pieces + 15) / 16 * 16;
  parallel_for(length, piece, [&](std::int64_t begin, std::int64_t end) {
    if (by_rows) {
      multiply(g, end - begin, g.n, at(g.a, begin * (g.transpose_a ? 1 : g.lda)), g.b,
               const_cast<char*>(at(g.c, begin * g.ldc)));
    } else {
      multiply(g, g.m, end - begin, g.a, at(g.b, begin * (g.transpose_b ? g.ldb : 1)),
               const_cast<char*>(at(g.c, begin)));
    }
  });
}

// Writes the bias into every row of C; the product is then added to it.
void write_bias(const GemmArgs& g) {
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(g.dtype));
  const std::int64_t rows = g.batch * g.outer * g.m;
  parallel_for(
      rows, std::max<std::int64_t>(1, kBiasElements / g.n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t matrix = row / g.m;
          const std::int64_t at =
              matrix / g.batch * g.outer_c + matrix % g.batch * g.stride_c + row % g.m * g.ldc;
          std::memcpy(static_cast<char*>(g.c) + at * bytes, g.bias, static_cast<std::size_t>(g.n * bytes));
        }
      });
}

// Multiplies from panels, which are spread over threads; the bits do not depend on how.
template <class T>
void multiply_panels(const GemmArgs& g, const PackedGemm<T>& kernels) {
  const std::int64_t panels = kernels.panels(g.n), work = g.m * g.n * g.k;
  // Pieces of at least kSmallPiece; if there would be few, this thread does all.
  const std::int64_t pieces = work < 4 * kSmallPiece ? 1 : work / kSmallPiece;
  const std::int64_t grain = (panels + pieces - 1) / pieces;
  parallel_for(panels, grain, [&](std::int64_t begin, std::int64_t end) {
    kernels.multiply(g.m, g.k, g.n, begin, end, static_cast<const T*>(g.a), g.lda,
                     static_cast<const T*>(g.panels_b), static_cast<T*>(g.c), g.ldc, g.beta != 0);
    if (!g.relu) return;
    const std::int64_t first = begin * kernels.panel_columns,
                       last = std::min(end * kernels.panel_columns, g.n);
    apply_relu(g, g.m, last - first, static_cast<T*>(g.c) + first);
  });
}

// Rows of C that one thread multiplies at a time where there are many: several blocks of the kernel.
constexpr std::int64_t kRoundedRows = 192;

// One matrix, with factors rounded to bf16: packs B if the caller has not. Threads share rows of C, or, where
// there are few, panels; the bits do not depend on how.
void multiply_rounded_one(const GemmArgs& g, const float* a, const float* b, float* c) {
  const PackedGemm<float>& kernels = packed_gemm_kernels().f32;
  const std::int64_t panels = kernels.panels(g.n), work = g.m * g.n * g.k;
  const float* packed = static_cast<const float*>(g.panels_b);
  Tensor scratch;
  if (packed == nullptr) {
    scratch = Tensor::empty({kernels.packed_elements(g.k, g.n)});
    float* const to = scratch.mutable_data<float>();
    const PackLayout layout = g.transpose_b ? PackLayout::columns_by_inner : PackLayout::inner_by_columns;
    parallel_for(panels, std::max<std::int64_t>(1, kSmallPiece / (g.k * kernels.panel_columns)),
                 [&](std::int64_t begin, std::int64_t end) {
                   kernels.pack(b, g.ldb, layout, g.k, g.n, begin, end, to);
                 });
    packed = to;
  }
  const auto multiply = g.transpose_a ? kernels.multiply_transposed : kernels.multiply;
  const auto piece = [&](std::int64_t row, std::int64_t rows, std::int64_t begin, std::int64_t end) {
    multiply(rows, g.k, g.n, begin, end, a + row * (g.transpose_a ? 1 : g.lda), g.lda, packed,
             c + row * g.ldc, g.ldc, g.beta != 0);
    const std::int64_t first = begin * kernels.panel_columns,
                       last = std::min(end * kernels.panel_columns, g.n);
    if (g.relu) apply_relu(g, rows, last - first, c + row * g.ldc + first);
  };
  if (work < 4 * kSmallPiece) return piece(0, g.m, 0, panels);
  if (g.m > kRoundedRows)
    return parallel_for(g.m, kRoundedRows,
                        [&](std::int64_t begin, std::int64_t end) { piece(begin, end - begin, 0, panels); });
  // Each piece rounds all of A, so pieces are not small.
  const std::int64_t pieces = std::min<std::int64_t>(work / kSmallPiece, 2 * thread_count());
  parallel_for(panels, (panels + pieces - 1) / pieces,
               [&](std::int64_t begin, std::int64_t end) { piece(0, g.m, begin, end); });
}

void multiply_rounded(const GemmArgs& g) {
  const auto matrix = [&g](std::int64_t i) {
    const std::int64_t outer = i / g.batch, inner = i % g.batch;
    multiply_rounded_one(g, static_cast<const float*>(g.a) + outer * g.outer_a + inner * g.stride_a,
                         static_cast<const float*>(g.b) + outer * g.outer_b + inner * g.stride_b,
                         static_cast<float*>(g.c) + outer * g.outer_c + inner * g.stride_c);
  };
  const std::int64_t matrices = g.batch * g.outer;
  if (matrices == 1) return matrix(0);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kSmallPiece / std::max<std::int64_t>(1, g.m * g.n * g.k));
  parallel_for(matrices, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) matrix(i);
  });
}

void gemm(const GemmArgs& args) {
  GemmArgs g = args;
  const std::int64_t matrices = g.batch * g.outer, work = g.m * g.n * g.k;
  if (matrices == 0 || g.m == 0 || g.n == 0) return;
  reserve_product_memory(thread_count());
  if (g.bias != nullptr) {
    write_bias(g);
    g.beta = 1;
  }
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(g.dtype));
  if (g.dtype == Dtype::f32 && rounds_products()) return multiply_rounded(g);
  if (g.panels_b != nullptr)
    return g.dtype == Dtype::f32 ? multiply_panels(g, packed_gemm_kernels().f32)
                                 : multiply_panels(g, packed_gemm_kernels().f64);
  if (matrices == 1) {
    if (try_small_gemm(g)) return;
    if (work < 4 * kSmallPiece) return multiply(g, g.m, g.n, g.a, g.b, g.c);
    return multiply_in_blocks(g);
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kSmallPiece / std::max<std::int64_t>(1, work));
  parallel_for(matrices, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t outer = i / g.batch, inner = i % g.batch;
      multiply(g, g.m, g.n, static_cast<const char*>(g.a) + (outer * g.outer_a + inner * g.stride_a) * bytes,
               static_cast<const char*>(g.b) + (outer * g.outer_b + inner * g.stride_b) * bytes,
               static_cast<char*>(g.c) + (outer * g.outer_c + inner * g.stride_c) * bytes);
    }
  });
}

// OpenBLAS chooses its kernels from a list of processor models. For one newer than its release it falls back
// to SSE3 ("Prescott"), a sixth of the rate: 25 against 143 GFLOP/s on an Emerald Rapids with OpenBLAS
// 0.3.21. Some systems work around that with OPENBLAS_CORETYPE=Haswell, which halves the rate of a processor
// with AVX-512: 63 and 73 against 142 and 139 on an EPYC. In both cases the functions below, which builds for
// several processors export, choose again. Any other core that the user names is kept, Zen with its AVX2
// among them.
extern "C" {
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));
}

void choose_openblas_kernels() {
#if defined(EDDY_X86_LEVELS)
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  const char* const named = std::getenv(kVariable);
  const std::string before = named == nullptr ? "" : named;
  const IsaLevel level = best_isa_level();
  const bool unknown = named == nullptr && std::string_view(openblas_get_corename()) == "Prescott";
  const bool halved = before == "Haswell" && level >= IsaLevel::avx512;
  if (gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr || level == IsaLevel::baseline ||
      !(unknown || halved))
    return;
  const bool bf16_unit = level >= IsaLevel::avx512_bf16;
  setenv(kVariable, level == IsaLevel::avx2 ? "Haswell" : bf16_unit ? "Cooperlake" : "SkylakeX", 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  // The variable is meant for this process's OpenBLAS, not for child processes.
  if (named == nullptr)
    unsetenv(kVariable);
  else
    setenv(kVariable, before.c_str(), 1);
#endif
}

}  // namespace

void reserve_product_memory(int threads) {
  if (threads_with_buffers.load(std::memory_order_acquire) >= threads) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const int had = threads_with_buffers.load(std::memory_order_relaxed);
  if (had >= threads) return;
  std::vector<void*> asked;
  for (int i = had; i < threads; ++i) {
    void* const memory =
        mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) asked.push_back(memory);
  }
  for (void* const memory : asked) munmap(memory, kBufferBytes);
  if (static_cast<int>(asked.size()) < threads - had) refuse_memory_limit(threads);
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  // Under a limit the buffers are taken now, before anything else takes their place. Those that OpenBLAS has
  // already are among them.
  if (limited && blas_memory_alloc != nullptr && blas_memory_free != nullptr) {
    std::vector<void*> buffers;
    for (int i = 0; i < std::min(threads, kMaxBuffers); ++i) buffers.push_back(blas_memory_alloc(0));
    for (void* const buffer : buffers) blas_memory_free(buffer);
  }
  threads_with_buffers.store(threads, std::memory_order_release);
}

void install_gemm();
void install_gemm() {
  choose_openblas_kernels();
  openblas_set_num_threads(1);
  gemm_slot.function[0] = gemm;
}

}  // namespace eddy
