// The packed products in use, and how threads share one; packed_gemm.isa.cpp and bf16_gemm.isa.cpp hold the kernels.
#include "ops/product/packed_gemm.h"

#include <algorithm>

#include "ops/core/slot.h"
#include "ops/cpu/isa.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {
namespace {

constinit PackedGemmKernels full{}, dot{}, amx{};  // the last two round f32 factors
constinit Bf16GemmKernels rounding_kernels{};

}  // namespace

const PackedGemmKernels& packed_gemm_kernels(MatmulPrecision precision) {
  install_backends();
  if (!rounds_to_bf16(precision)) return full;
  return isa_level() == IsaLevel::amx ? amx : dot;
}

const Bf16GemmKernels& bf16_gemm_kernels() {
  install_backends();
  return rounding_kernels;
}

void set_packed_gemm_kernels(const PackedGemmKernels& kernels, const Bf16GemmKernels& rounding) {
  full = kernels;
  rounding_kernels = rounding;
  dot = {rounding.dot, kernels.f64};
  amx = {emulates_tiles() ? rounding.emulated_amx : rounding.amx, kernels.f64};
}

namespace {

template <class T>
void multiply_panels_of(const GemmArgs& g, const PackedGemm<T>& kernels) {
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

// One matrix of the batch.
void multiply_rounded_one(const GemmArgs& g, const float* a, const float* b, float* c) {
  const PackedGemm<float>& kernels = packed_gemm_kernels(g.precision).f32;
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

}  // namespace

void multiply_panels(const GemmArgs& g) {
  return g.dtype == Dtype::f32 ? multiply_panels_of(g, packed_gemm_kernels().f32)
                               : multiply_panels_of(g, packed_gemm_kernels().f64);
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

}  // namespace eddy
