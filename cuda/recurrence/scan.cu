// Scans: h_t = a_t h_{t-1} + b_t over the blocks of time of ops/recurrence/scan.h, in up to three launches: the pair of
// each block, the h before each, the steps.
//
//   mapping        wide channels: a thread per channel and block, neighbours along the channels, which goes through the
//                  steps; its loads do not wait for its sums. Narrow ones: a warp per channel and block; the lanes
//                  hold 32 steps, which 5 exchanges combine, and the last lane's h goes on.
//                  The h before each block: a thread per channel.
//   shared memory  none
//   bytes moved    one block: a, b and h once, the least, for da two more. Several: a and b twice. Narrow channels but
//                  a single one are fetched in sectors of 32 bytes, which neighbours share through the cache.
#include "cuda/core/launch.cuh"
#include "cuda/core/team.cuh"
#include "ops/recurrence/scan.h"

namespace eddy::cuda {
namespace {

// A channel and a block of its time.
struct ScanPart {
  std::int64_t outer, column, block;
};

__device__ ScanPart scan_part(const ScanArgs& args, std::int64_t item) {
  const std::int64_t line = item / args.inner;  // neighbours in a warp have neighbouring channels
  return {line / args.blocks, item % args.inner, line % args.blocks};
}

// The operands of step k of the scan's order.
struct ScanStep {
  std::int64_t at;  // of b, h and da
  float a, b;
};

__device__ ScanStep scan_step(const ScanArgs& args, const ScanPart& part, std::int64_t k) {
  const std::int64_t t = args.reverse ? args.time - 1 - k : k;
  const std::int64_t at = (part.outer * args.time + t) * args.inner + part.column;
  // In reverse the factor is that of the step after, and after the last one there is nothing to multiply.
  const bool factor = args.a != nullptr && !(args.reverse && k == 0);
  return {at, factor ? static_cast<const float*>(args.a)[args.reverse ? at + args.inner : at] : 1.0f,
          static_cast<const float*>(args.b)[at]};
}

__device__ std::int64_t scan_block_end(const ScanArgs& args, const ScanPart& part) {
  return min((part.block + 1) * args.block, args.time);
}

__device__ float* scan_carry(const ScanArgs& args, const ScanPart& part, int which) {
  return static_cast<float*>(args.carries) +
         ((part.outer * args.blocks + part.block) * 2 + which) * args.inner + part.column;
}

__device__ float scan_initial(const ScanArgs& args, const ScanPart& part) {
  return args.initial == nullptr
             ? 0.0f
             : static_cast<const float*>(args.initial)[part.outer * args.inner + part.column];
}

__device__ float scan_start(const ScanArgs& args, const ScanPart& part) {
  if (args.blocks > 1) return *scan_carry(args, part, 0);
  return args.reverse ? 0.0f : scan_initial(args, part);
}

__device__ void scan_store(const ScanArgs& args, const ScanPart& part, std::int64_t k, std::int64_t at,
                           float h) {
  static_cast<float*>(args.h)[at] = h;
  if (args.da == nullptr) return;
  const bool first = k == args.time - 1;  // in reverse
  const float before =
      first ? scan_initial(args, part) : static_cast<const float*>(args.before)[at - args.inner];
  static_cast<float*>(args.da)[at] = h * before;
}

// A product that overflowed does not count where h is 0.
__device__ float scan_times(float a, float h) {
  return h == 0.0f ? 0.0f : a * h;
}

__global__ void scan_pairs_kernel(ScanArgs args) {
  for (std::int64_t item = first_item(); item < args.outer * args.blocks * args.inner; item += item_step()) {
    const ScanPart part = scan_part(args, item);
    if (part.block + 1 == args.blocks) continue;
    const std::int64_t end = scan_block_end(args, part);
    float a = 1, b = 0;
#pragma unroll 4
    for (std::int64_t k = part.block * args.block; k < end; ++k) {
      const ScanStep step = scan_step(args, part, k);
      a *= step.a;
      b = step.a * b + step.b;
    }
    *scan_carry(args, part, 0) = a;
    *scan_carry(args, part, 1) = b;
  }
}

__global__ void scan_join_kernel(ScanArgs args) {
  for (std::int64_t item = first_item(); item < args.outer * args.inner; item += item_step()) {
    ScanPart part{item / args.inner, item % args.inner, 0};
    float h = args.reverse ? 0.0f : scan_initial(args, part);
    for (; part.block < args.blocks; ++part.block) {
      float* const a = scan_carry(args, part, 0);
      const float factor = *a;
      *a = h;
      if (part.block + 1 < args.blocks) h = scan_times(factor, h) + *scan_carry(args, part, 1);
    }
  }
}

__global__ void scan_steps_kernel(ScanArgs args) {
  for (std::int64_t item = first_item(); item < args.outer * args.blocks * args.inner; item += item_step()) {
    const ScanPart part = scan_part(args, item);
    const std::int64_t end = scan_block_end(args, part);
    float h = scan_start(args, part);
#pragma unroll 4
    for (std::int64_t k = part.block * args.block; k < end; ++k) {
      const ScanStep step = scan_step(args, part, k);
      h = step.a * h + step.b;
      scan_store(args, part, k, step.at, h);
    }
  }
}

// The pairs of steps 0 .. lane of a warp's steps, in place of its own pair.
__device__ void scan_lanes(float& a, float& b, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float earlier_a = __shfl_up_sync(0xffffffffu, a, distance),
                earlier_b = __shfl_up_sync(0xffffffffu, b, distance);
    if (lane < distance) continue;
    b = a * earlier_b + b;
    a *= earlier_a;
  }
}

// `Pairs`: the pair of a block in place of its steps.
template <bool Pairs>
__global__ void scan_warps_kernel(ScanArgs args) {
  using Warp = Team<32>;
  const int lane = Warp::lane();
  for (std::int64_t item = Warp::first_row(); item < args.outer * args.blocks * args.inner;
       item += Warp::row_step()) {
    const ScanPart part = scan_part(args, item);
    const std::int64_t end = scan_block_end(args, part);
    float product = 1, h = Pairs ? 0.0f : scan_start(args, part);
    for (std::int64_t first = part.block * args.block; first < end; first += 32) {
      const std::int64_t k = first + lane;
      const bool inside = k < end;
      const ScanStep step = inside ? scan_step(args, part, k) : ScanStep{0, 1.0f, 0.0f};
      float a = step.a, b = step.b;
      scan_lanes(a, b, lane);
      const float state = scan_times(a, h) + b;
      if (!Pairs && inside) scan_store(args, part, k, step.at, state);
      h = __shfl_sync(0xffffffffu, state, 31);
      product *= __shfl_sync(0xffffffffu, a, 31);
    }
    if (Pairs && lane == 0) {
      *scan_carry(args, part, 0) = product;
      *scan_carry(args, part, 1) = h;
    }
  }
}

}  // namespace

void scan(const ScanArgs& args) {
  require_f32("scan", args.dtype);
  const std::int64_t channels = args.outer * args.inner, parts = channels * args.blocks;
  const bool narrow = args.inner < kScanNarrow;
  const auto run = [&](auto by_threads, auto by_warps) {
    if (narrow)
      launch("scan", by_warps, grid_for(parts, Team<32>::kRowsPerBlock, 64), kThreads, args);
    else
      launch("scan", by_threads, grid_for(parts, kThreads), kThreads, args);
  };
  if (args.blocks > 1) {
    run(scan_pairs_kernel, scan_warps_kernel<true>);
    launch("scan", scan_join_kernel, grid_for(channels, kThreads), kThreads, args);
  }
  run(scan_steps_kernel, scan_warps_kernel<false>);
}

}  // namespace eddy::cuda
