// Decides which products are small in the sense of gemm_small.h, and spreads their rows over threads.
#include "ops/product/gemm_small.h"

#include <algorithm>

#include "tensor/tensor.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::detail {
namespace {

constinit SmallGemmKernel in_use{};

// Elements up to which the kernel wins: of the operand B, which stays in the second-level cache, and of the
// result of dy^T x, which stays in the first. Measured on a core with 48 KiB of the first and 2 MiB of the
// second: 512 x 512 gains 10 %, 1024 x 1024 loses half.
constexpr std::int64_t kSmallFactor = 1 << 18, kSmallResult = 3 << 12;
// Rows below which writing out W^T, or the tiles' edges, cost more than the kernel saves.
constexpr std::int64_t kLeastRows = 64, kLeastRowsTransposed = 128;
// Rows of a piece, unless a transposed A has fewer: enough to hide the dispatch, few enough to stay cached.
constexpr std::int64_t kLeastPiece = 64, kMostPiece = 256, kPieceWork = 1 << 18;

// Inner indices of a block. Columns of a transposed A are used a few at a time, and its lines stay in the
// first cache until all are used if a block of A and B has at most kBlockElements.
constexpr std::int64_t kInnerBlock = 256, kLeastInnerBlock = 32, kBlockElements = 8192;

// B = W^T, [inner, columns] row-major, from W [columns, inner]. Blocks of a cache line keep both sides in the
// first cache.
void transpose(const float* w, std::int64_t w_stride, std::int64_t inner, std::int64_t columns, float* b) {
  constexpr std::int64_t block = 16;
  for (std::int64_t k = 0; k < inner; k += block)
    for (std::int64_t j = 0; j < columns; j += block)
      for (std::int64_t i = k; i < std::min(k + block, inner); ++i)
        for (std::int64_t c = j; c < std::min(j + block, columns); ++c)
          b[i * columns + c] = w[c * w_stride + i];
}

}  // namespace

const SmallGemmKernel& small_gemm_kernel() {
  return in_use;
}

void set_small_gemm_kernel(const SmallGemmKernel& kernel) {
  in_use = kernel;
}

bool try_small_gemm(const GemmArgs& g) {
  const SmallGemmKernel kernel = in_use;
  if (kernel.lanes == 0 || g.k == 0 || g.dtype != Dtype::f32 || g.alpha != 1 ||
      (g.beta != 0 && g.beta != 1) || g.n % kernel.lanes != 0)
    return false;
  const bool gradient = g.transpose_a;
  const std::int64_t least = g.transpose_b ? kLeastRowsTransposed : kLeastRows;
  if (gradient ? g.transpose_b || g.k < kLeastRows || g.m * g.n > kSmallResult
               : g.m < least || g.n * g.k > kSmallFactor)
    return false;
  const Tensor transposed = g.transpose_b ? Tensor::empty({g.k, g.n}, Dtype::f32) : Tensor();
  SmallGemmArgs whole{
      g.m,
      g.n,
      g.k,
      gradient ? std::clamp(kBlockElements / (g.m + g.n), kLeastInnerBlock, kInnerBlock) : kInnerBlock,
      static_cast<const float*>(g.a),
      gradient ? 1 : g.lda,
      gradient ? g.lda : 1,
      static_cast<const float*>(g.b),
      g.ldb,
      static_cast<float*>(g.c),
      g.ldc,
      g.beta == 1,
      g.relu};
  if (g.transpose_b) {
    float* const b = static_cast<float*>(transposed.raw_data());
    transpose(whole.b, g.ldb, g.k, g.n, b);
    whole.b = b;
    whole.b_stride = g.n;
  }
  constexpr std::int64_t kTile = 8;
  const std::int64_t threads = thread_count(), enough = (kPieceWork / (g.n * g.k) + kTile) / kTile * kTile,
                     equal = (g.m + kTile * threads - 1) / (kTile * threads) * kTile;
  // Each piece of a transposed A reads all of B, and whole lines of A: a thread has one. Sums are the same in any cut.
  const std::int64_t grain = gradient ? std::max(enough, equal) : std::clamp(enough, kLeastPiece, kMostPiece);
  parallel_for(g.m, grain, [&](std::int64_t begin, std::int64_t end) {
    SmallGemmArgs piece = whole;
    piece.rows = end - begin;
    piece.a += begin * piece.a_row;
    piece.c += begin * piece.c_stride;
    kernel.multiply(piece);
  });
  return true;
}

}  // namespace eddy::detail
