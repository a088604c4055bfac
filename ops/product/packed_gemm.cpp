// The packed products in use, and how threads share one; packed_gemm.isa.cpp and bf16_gemm.isa.cpp hold the kernels.
#include "ops/product/packed_gemm.h"

#include <algorithm>
#include <type_traits>

#include "ops/core/slot.h"
#include "ops/cpu/isa.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::detail {
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
  const bool emulates_dot = emulates_tiles() && rounding.emulated_dot.pack != nullptr;
  dot = {emulates_dot ? rounding.emulated_dot : rounding.dot, kernels.f64};
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

// Rows of C that one thread multiplies at a time where there are many: several blocks of the kernel, and no fewer than
// half as many.
constexpr std::int64_t kSharedRows = 192;

// The share of a piece [begin, end) of `all`.
template <class T>
LaterPanels<T> part_of(LaterPanels<T> later, std::int64_t begin, std::int64_t end, std::int64_t all) {
  const std::int64_t panels = later.panel_end;
  later.panel_begin = panels * begin / all;
  later.panel_end = panels * end / all;
  return later;
}

// Spreads a product over threads: rows of C, or, where there are few, panels.
template <class T>
void share(const PackedGemm<T>& kernels, const PanelProduct<T>& whole, bool transposed) {
  const auto multiply = transposed ? kernels.multiply_transposed : kernels.multiply;
  const std::int64_t work = whole.rows * whole.columns * whole.inner,
                     threads = in_parallel_region() ? 1 : thread_count();
  if (work < 4 * kSmallPiece || threads == 1) return multiply(whole);
  if (whole.rows > kSharedRows) {
    // As many pieces for each thread: 512 rows are two pieces for two threads, not 192, 192 and 128 rows.
    constexpr std::int64_t kPiecesOfAThread = 4, kTile = 32;
    const std::int64_t pieces =
        std::clamp(whole.rows / kSharedRows / threads * threads,
                   std::min(threads, 2 * whole.rows / kSharedRows), kPiecesOfAThread * threads);
    const std::int64_t piece_rows = (whole.rows + pieces * kTile - 1) / (pieces * kTile) * kTile;
    return parallel_for(whole.rows, piece_rows, [&](std::int64_t begin, std::int64_t end) {
      PanelProduct<T> piece = whole;
      piece.rows = end - begin;
      piece.a += begin * (transposed ? 1 : whole.a_stride);
      piece.c += begin * whole.c_stride;
      piece.later = part_of(whole.later, begin, end, whole.rows);
      multiply(piece);
    });
  }
  // Each piece packs all of A, so pieces are not small.
  const std::int64_t panels = whole.panel_end,
                     pieces = std::min<std::int64_t>(work / kSmallPiece, 2 * threads);
  parallel_for(panels, (panels + pieces - 1) / pieces, [&](std::int64_t begin, std::int64_t end) {
    PanelProduct<T> piece = whole;
    piece.panel_begin = begin;
    piece.panel_end = end;
    piece.later = part_of(whole.later, begin, end, panels);
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

template <class T>
const PackedGemm<T>& kernels_of(MatmulPrecision precision) {
  if constexpr (std::is_same_v<T, float>)
    return packed_gemm_kernels(precision).f32;
  else
    return packed_gemm_kernels(precision).f64;
}

// Numbers of B that are packed at a time: 4 MiB in f32. More columns have their turn after those.
constexpr std::int64_t kPackedElements = 1 << 20;

// One matrix of the batch, or a part of one, whose inner indices have their turns.
template <class T>
void multiply_in_turns(const GemmArgs& g) {
  const PackedGemm<T>& kernels = kernels_of<T>(g.precision);
  const PanelProduct<T> whole = product_of<T>(g, kernels.panels(g.n));
  if (g.panels_b != nullptr) return share(kernels, whole, g.transpose_a);
  const std::int64_t depth = g.transpose_a ? std::min(kernels.packed_inner, g.k) : g.k,
                     width = kernels.panel_columns,
                     columns =
                         std::max(width, kPackedElements / std::max<std::int64_t>(1, depth) / width * width);
  const PackLayout layout = g.transpose_b ? PackLayout::columns_by_inner : PackLayout::inner_by_columns;
  const bool packs_later = kernels.packs_later && !g.transpose_b && (depth < g.k || columns < g.n);
  const std::int64_t packed_elements = kernels.packed_elements(depth, std::min(columns, g.n));
  const Tensor scratch = Tensor::empty({packs_later ? 2 : 1, packed_elements}, g.dtype);
  T* packed = scratch.mutable_data<T>();
  T* packed_later = packs_later ? packed + packed_elements : packed;
  const auto b_at = [&](std::int64_t k, std::int64_t column) {
    return static_cast<const T*>(g.b) + k * (g.transpose_b ? 1 : g.ldb) +
           column * (g.transpose_b ? g.ldb : 1);
  };
  for (std::int64_t k = 0, column = 0; k < g.k;) {
    const bool last_columns = column + columns >= g.n;
    const std::int64_t next_k = last_columns ? k + depth : k,
                       next_column = last_columns ? 0 : column + columns;
    PanelProduct<T> part = whole;
    part.inner = std::min(depth, g.k - k);
    part.columns = std::min(columns, g.n - column);
    part.panel_end = kernels.panels(part.columns);
    part.a += k * (g.transpose_a ? g.lda : 1);
    part.packed = packed;
    part.c += column;
    part.accumulate = whole.accumulate || k > 0;
    part.bias = k > 0 || whole.bias == nullptr ? nullptr : whole.bias + column;
    part.relu = g.relu && k + depth >= g.k;
    if (!packs_later || (k == 0 && column == 0))
      parallel_for(part.panel_end, std::max<std::int64_t>(1, kSmallPiece / (part.inner * width)),
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels.pack(b_at(k, column), g.ldb, layout, part.inner, part.columns, begin, end,
                                  packed);
                   });
    if (packs_later && next_k < g.k) {
      const std::int64_t next_columns = std::min(columns, g.n - next_column);
      part.later = {b_at(next_k, next_column),    g.ldb,       std::min(depth, g.k - next_k), next_columns, 0,
                    kernels.panels(next_columns), packed_later};
    }
    share(kernels, part, g.transpose_a);
    std::swap(packed, packed_later);
    k = next_k;
    column = next_column;
  }
}

// The part [begin, end) of C's rows, or columns.
template <class T>
GemmArgs rows_of(GemmArgs g, std::int64_t begin, std::int64_t end) {
  g.m = end - begin;
  g.a = static_cast<const T*>(g.a) + begin * (g.transpose_a ? 1 : g.lda);
  g.c = static_cast<T*>(g.c) + begin * g.ldc;
  return g;
}
template <class T>
GemmArgs columns_of(GemmArgs g, std::int64_t begin, std::int64_t end) {
  g.n = end - begin;
  g.b = static_cast<const T*>(g.b) + begin * (g.transpose_b ? g.ldb : 1);
  g.c = static_cast<T*>(g.c) + begin;
  if (g.bias != nullptr) g.bias = static_cast<const T*>(g.bias) + begin;
  return g;
}

// One matrix of the batch. Over many inner indices each thread computes a part of C by itself, and packs what that
// needs: threads that shared the packing would wait for each other at every turn, and pass C and the packed part of B
// from cache to cache. On two threads dy^T x in bf16 is 1.4 to 2.1 times as fast so (docs/choices.md).
template <class T>
void multiply_one_packing(const GemmArgs& g) {
  const std::int64_t threads = thread_count(), turn = kernels_of<T>(g.precision).packed_inner;
  if (g.panels_b != nullptr || !g.transpose_a || g.k <= turn || threads == 1 ||
      g.m * g.n * g.k < 4 * kSmallPiece)
    return multiply_in_turns<T>(g);
  // The parts are a grid with the least to pack.
  std::int64_t across = 1;
  for (std::int64_t count = 2; count <= threads; ++count)
    if (threads % count == 0 &&
        g.n / count + g.m / (threads / count) <= g.n / across + g.m / (threads / across))
      across = count;
  constexpr std::int64_t kTile = 32;
  const auto part = [](std::int64_t length, std::int64_t count) {
    return (length + count * kTile - 1) / (count * kTile) * kTile;
  };
  const std::int64_t rows = part(g.m, threads / across), columns = part(g.n, across),
                     down = (g.m + rows - 1) / rows, wide = (g.n + columns - 1) / columns;
  parallel_for(down * wide, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / wide * rows, column = i % wide * columns;
      multiply_in_turns<T>(columns_of<T>(rows_of<T>(g, row, std::min(g.m, row + rows)), column,
                                         std::min(g.n, column + columns)));
    }
  });
}

// The same with what the kernels do not take: alpha, another beta than 0 and 1, and A transposed where they read rows
// only. C is scaled first, A copied.
template <class T>
void multiply_any_packing(GemmArgs g) {
  if (g.beta != 0 && g.beta != 1) {
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) static_cast<T*>(g.c)[i * g.ldc + j] *= static_cast<T>(g.beta);
    g.beta = 1;
  }
  if (g.alpha == 1 && (!g.transpose_a || kernels_of<T>(g.precision).multiply_transposed != nullptr))
    return multiply_one_packing<T>(g);
  const Tensor rows = Tensor::empty({g.m, g.k}, g.dtype);
  T* const copied = rows.mutable_data<T>();
  const T* const a = static_cast<const T*>(g.a);
  const T alpha = static_cast<T>(g.alpha);
  constexpr std::int64_t kRows = 16;  // of A transposed, they lie in one or two cache lines
  const std::int64_t row = g.transpose_a ? 1 : g.lda, inner = g.transpose_a ? g.lda : 1;
  for (std::int64_t begin = 0; begin < g.m; begin += kRows)
    for (std::int64_t k = 0; k < g.k; ++k)
      for (std::int64_t i = begin; i < std::min(begin + kRows, g.m); ++i)
        copied[i * g.k + k] = alpha * a[i * row + k * inner];
  g.a = copied;
  g.lda = g.k;
  g.transpose_a = false;
  g.alpha = 1;
  multiply_one_packing<T>(g);
}

template <class T>
void multiply_matrices_packing(const GemmArgs& g) {
  const auto matrix = [&g](std::int64_t i) {
    const std::int64_t outer = i / g.batch, inner = i % g.batch;
    GemmArgs one = g;
    one.a = static_cast<const T*>(g.a) + outer * g.outer_a + inner * g.stride_a;
    one.b = static_cast<const T*>(g.b) + outer * g.outer_b + inner * g.stride_b;
    one.c = static_cast<T*>(g.c) + outer * g.outer_c + inner * g.stride_c;
    multiply_any_packing<T>(one);
  };
  const std::int64_t matrices = g.batch * g.outer;
  if (matrices == 1) return matrix(0);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kSmallPiece / std::max<std::int64_t>(1, g.m * g.n * g.k));
  parallel_for(matrices, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) matrix(i);
  });
}

}  // namespace

void multiply_panels(const GemmArgs& g) {
  return g.dtype == Dtype::f32 ? multiply_panels_of(g, packed_gemm_kernels().f32)
                               : multiply_panels_of(g, packed_gemm_kernels().f64);
}

void multiply_packing(const GemmArgs& g) {
  return g.dtype == Dtype::f32 ? multiply_matrices_packing<float>(g) : multiply_matrices_packing<double>(g);
}

}  // namespace eddy::detail
