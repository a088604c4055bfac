// Products on the CPU: the choice between their ways. Each piece of a product runs on one thread of the library's pool.
// A large product is cut into row (or column) blocks whose sizes depend on the shape alone, so results do not depend on
// the number of threads.
//
//   packed_gemm.h   a weight that is packed already, factors that are rounded to bf16, large products on Intel
//   gemm_small.h    narrow layers, read in place
//   blas.h          all others
#include <algorithm>
#include <cstring>

#include "ops/cpu/isa.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/blas.h"
#include "ops/product/gemm_small.h"
#include "ops/product/packed_gemm.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {

using namespace detail;

void detail::apply_relu(const GemmArgs& g, std::int64_t m, std::int64_t n, void* c) {
  const bool adjacent = g.ldc == n;
  const std::int64_t runs = adjacent ? 1 : m, length = adjacent ? m * n : n,
                     step = g.ldc * static_cast<std::int64_t>(dtype_bytes(g.dtype));
  for (std::int64_t i = 0; i < runs; ++i) {
    void* const run = static_cast<char*>(c) + i * step;
    unary_forward_slot(kCpu, {pointwise::kReluIndex, g.dtype, length, run, nullptr, run});
  }
}

namespace {

// Rows of a block: OpenBLAS packs B again for every block, which costs some 1/rows of the product.
constexpr std::int64_t kBlockRows = 256;
// Elements of C that one thread writes the bias into at a time.
constexpr std::int64_t kBiasElements = 1 << 15;

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
      multiply_by_blas(g, end - begin, g.n, at(g.a, begin * (g.transpose_a ? 1 : g.lda)), g.b,
                       const_cast<char*>(at(g.c, begin * g.ldc)));
    } else {
      multiply_by_blas(g, g.m, end - begin, g.a, at(g.b, begin * (g.transpose_b ? g.ldb : 1)),
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

// Whether the kernels of packed_gemm.h, which pack both factors, take an f32 product: where they were measured to be
// faster than what else there is, OpenBLAS or gemm_small.h, on processors of Intel
// (docs/performance.md#products-in-f32). Where too few panels or rows share what is packed, the others stay. At AVX2
// dy^T x is 3 to 10 % slower than OpenBLAS's but for small results. On processors of AMD OpenBLAS is near the machine's
// rate.
bool packs_factors([[maybe_unused]] const GemmArgs& g) {
#if defined(EDDY_X86_LEVELS)
  static const bool measured = __builtin_cpu_is("intel");
  constexpr std::int64_t kLeastRows = 64, kLeastWidth = 96, kPanel = 32, kWide = 256;
  if (!measured || g.dtype != Dtype::f32 || g.alpha != 1 || (g.beta != 0 && g.beta != 1) ||
      g.m < kLeastRows || g.n < kLeastWidth || g.k < kLeastWidth || (g.n % kPanel != 0 && g.n < kWide) ||
      isa_level() < IsaLevel::avx2)
    return false;
  const bool avx512 = isa_level() >= IsaLevel::avx512;
  if (g.transpose_a) return avx512 || g.m * g.n < 1 << 14;
  if (g.transpose_b) return !avx512 || g.n >= 4 * kPanel || g.m < 512;
  return g.m < 256 ? g.n * g.k > 1 << 18 : g.n >= kWide || g.n * g.k >= 1 << 16;
#else
  return false;
#endif
}

void gemm(const GemmArgs& args) {
  GemmArgs g = args;
  const std::int64_t matrices = g.batch * g.outer, work = g.m * g.n * g.k;
  if (matrices == 0 || g.m == 0 || g.n == 0) return;
  reserve_product_memory(thread_count());
  if (g.transpose_a && std::min(g.m, g.n) < kLeastRoundedSide) g.precision = MatmulPrecision::f32;
  if (g.dtype == Dtype::f32 && rounds_to_bf16(g.precision)) return multiply_packing(g);
  if (g.panels_b != nullptr) return multiply_panels(g);
  if (matrices == 1 && packs_factors(g)) return multiply_packing(g);
  if (g.bias != nullptr) {
    write_bias(g);
    g.beta = 1;
  }
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(g.dtype));
  if (matrices == 1) {
    if (try_small_gemm(g)) return;
    if (work < 4 * kSmallPiece) return multiply_by_blas(g, g.m, g.n, g.a, g.b, g.c);
    return multiply_in_blocks(g);
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kSmallPiece / std::max<std::int64_t>(1, work));
  parallel_for(matrices, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t outer = i / g.batch, inner = i % g.batch;
      multiply_by_blas(g, g.m, g.n,
                       static_cast<const char*>(g.a) + (outer * g.outer_a + inner * g.stride_a) * bytes,
                       static_cast<const char*>(g.b) + (outer * g.outer_b + inner * g.stride_b) * bytes,
                       static_cast<char*>(g.c) + (outer * g.outer_c + inner * g.stride_c) * bytes);
    }
  });
}

}  // namespace

void install_gemm();
void install_gemm() {
  prepare_blas();
  gemm_slot.function[0] = gemm;
}

}  // namespace eddy
