// The packed products in use, and how threads share one; packed_gemm.isa.cpp and bf16_gemm.isa.cpp hold the kernels.
#include "ops/product/packed_gemm.h"

#include <algorithm>
#include <type_traits>

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

// A product with given panels as the kernels take it.
template <class T>
PanelProduct<T> product_of(const GemmArgs& g, std::int64_t panels) {
  return {g.m,
          g.k,
          g.n,
          0,
          panels,
          static_cast<const T*>(g.a),
          g.lda,
          static_cast<const T*>(g.panels_b),
          static_cast<T*>(g.c),
          g.ldc,
          g.beta != 0,
          static_cast<const T*>(g.bias),
          g.relu};
}

// Rows of C that one thread multiplies at a time where there are many: several blocks of the kernel.
constexpr std::int64_t kSharedRows = 192;

// Spreads a product over threads: rows of C, or, where there are few, panels.
void share(const PackedGemm<float>& kernels, const PanelProduct<float>& whole, bool transposed) {
  const auto multiply = transposed ? kernels.multiply_transposed : kernels.multiply;
  const std::int64_t work = whole.rows * whole.columns * whole.inner, threads = thread_count();
  if (work < 4 * kSmallPiece || threads == 1) return multiply(whole);
  if (whole.rows > kSharedRows) {
    constexpr std::int64_t kPiecesOfAThread = 4, kTile = 32;
    const std::int64_t equal = whole.rows / (kPiecesOfAThread * threads) / kTile * kTile;
    return parallel_for(whole.rows, std::max(kSharedRows, equal), [&](std::int64_t begin, std::int64_t end) {
      PanelProduct<float> piece = whole;
      piece.rows = end - begin;
      piece.a += begin * (transposed ? 1 : whole.a_stride);
      piece.c += begin * whole.c_stride;
      multiply(piece);
    });
  }
  // Each piece packs all of A, so pieces are not small.
  const std::int64_t panels = whole.panel_end,
                     pieces = std::min<std::int64_t>(work / kSmallPiece, 2 * threads);
  parallel_for(panels, (panels + pieces - 1) / pieces, [&](std::int64_t begin, std::int64_t end) {
    PanelProduct<float> piece = whole;
    piece.panel_begin = begin;
    piece.panel_end = end;
    multiply(piece);
  });
}

template <class T>
void multiply_panels_of(const GemmArgs& g, const PackedGemm<T>& kernels) {
  const std::int64_t panels = kernels.panels(g.n), work = g.m * g.n * g.k;
  const PanelProduct<T> whole = product_of<T>(g, panels);
  if constexpr (std::is_same_v<T, float>)
    if (kernels.multiply_transposed != nullptr) return share(kernels, whole, false);
  // Pieces of at least kSmallPiece; if there would be few, this thread does all.
  const std::int64_t pieces = work < 4 * kSmallPiece ? 1 : work / kSmallPiece;
  parallel_for(panels, (panels + pieces - 1) / pieces, [&](std::int64_t begin, std::int64_t end) {
    PanelProduct<T> piece = whole;
    piece.panel_begin = begin;
    piece.panel_end = end;
    kernels.multiply(piece);
  });
}

// Numbers of B that are packed at a time: 4 MiB in f32. More columns have their turn after those.
constexpr std::int64_t kPackedElements = 1 << 20;

// One matrix of the batch.
void multiply_one_packing(const GemmArgs& g) {
  const PackedGemm<float>& kernels = packed_gemm_kernels(g.precision).f32;
  const PanelProduct<float> whole = product_of<float>(g, kernels.panels(g.n));
  if (g.panels_b != nullptr) return share(kernels, whole, g.transpose_a);
  const std::int64_t depth = g.transpose_a ? std::min(kernels.packed_inner, g.k) : g.k,
                     width = kernels.panel_columns,
                     columns =
                         std::max(width, kPackedElements / std::max<std::int64_t>(1, depth) / width * width);
  const Tensor scratch = Tensor::empty({kernels.packed_elements(depth, std::min(columns, g.n))});
  float* const packed = scratch.mutable_data<float>();
  const PackLayout layout = g.transpose_b ? PackLayout::columns_by_inner : PackLayout::inner_by_columns;
  for (std::int64_t k = 0; k < g.k; k += depth)
    for (std::int64_t column = 0; column < g.n; column += columns) {
      PanelProduct<float> part = whole;
      part.inner = std::min(depth, g.k - k);
      part.columns = std::min(columns, g.n - column);
      part.panel_end = kernels.panels(part.columns);
      part.a += k * (g.transpose_a ? g.lda : 1);
      part.packed = packed;
      part.c += column;
      part.accumulate = whole.accumulate || k > 0;
      part.bias = k > 0 || whole.bias == nullptr ? nullptr : whole.bias + column;
      part.relu = g.relu && k + depth >= g.k;
      const float* const b = static_cast<const float*>(g.b) + k * (g.transpose_b ? 1 : g.ldb) +
                             column * (g.transpose_b ? g.ldb : 1);
      parallel_for(part.panel_end, std::max<std::int64_t>(1, kSmallPiece / (part.inner * width)),
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels.pack(b, g.ldb, layout, part.inner, part.columns, begin, end, packed);
                   });
      share(kernels, part, g.transpose_a);
    }
}

}  // namespace

void multiply_panels(const GemmArgs& g) {
  return g.dtype == Dtype::f32 ? multiply_panels_of(g, packed_gemm_kernels().f32)
                               : multiply_panels_of(g, packed_gemm_kernels().f64);
}

void multiply_packing(const GemmArgs& g) {
  const auto matrix = [&g](std::int64_t i) {
    const std::int64_t outer = i / g.batch, inner = i % g.batch;
    GemmArgs one = g;
    one.a = static_cast<const float*>(g.a) + outer * g.outer_a + inner * g.stride_a;
    one.b = static_cast<const float*>(g.b) + outer * g.outer_b + inner * g.stride_b;
    one.c = static_cast<float*>(g.c) + outer * g.outer_c + inner * g.stride_c;
    multiply_one_packing(one);
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
