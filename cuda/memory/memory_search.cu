// The search in an external memory: marking empty entries, choosing by scores, taking the pairs.
//
// Mapping.
//   mark     a warp per entry and head
//   ends     a block per sequence and head
//   bucket   a block per query, a thread per bucket: neighbours read neighbouring scores
//   exact    a block per query. The topk-th best score is found byte by byte from the top, in four rounds: a
//            histogram of the next byte of the scores that agree in the bytes before. Then the scores above
//            it, and the first of those equal to it, are listed in order by counting within tiles of 256.
//   take     a warp per query and place, each thread every 32nd element of the pair
//
//   shared memory  up to 1.1 KiB
//   bytes moved    bucket reads the scores twice, exact five times (mostly from the second-level cache: the
//                  scores of one query are 256 KiB for a memory of 65536); the pairs are read and written
//                  once, the least
//
// Counts are integers, so their order does not matter and results are deterministic.
#include "cuda/core/team.cuh"
#include "ops/memory/memory_search.h"

namespace eddy::cuda {
namespace {

// Values of `chosen` that are not entries.
constexpr std::int32_t kNone = -1;     // no entry for this place
constexpr std::int32_t kSeveral = -2;  // more than one entry of the bucket has a weight

__global__ void mark_kernel(MemoryMarkArgs args) {
  using RowTeam = Team<32>;
  const float* const keys = static_cast<const float*>(args.keys);
  const std::int64_t entries = args.batch * args.size * args.heads;
  for (std::int64_t i = RowTeam::first_row(); i < entries; i += RowTeam::row_step()) {
    bool blank = true;
    for (std::int64_t c = RowTeam::lane(); c < args.head_dim; c += 32)
      blank = blank && keys[i * args.head_dim + c] == 0.0f;
    blank = __all_sync(0xffffffffu, blank);
    const std::int64_t head = i % args.heads, entry = i / args.heads % args.size,
                       sequence = i / args.heads / args.size;
    if (RowTeam::lane() == 0) args.blank[(sequence * args.heads + head) * args.size + entry] = blank ? 1 : 0;
  }
}

__global__ void ends_kernel(MemoryMarkArgs args) {
  using RowTeam = Team<kThreads>;
  for (std::int64_t row = RowTeam::first_row(); row < args.batch * args.heads; row += RowTeam::row_step()) {
    std::int32_t last = 0;
    for (std::int64_t m = RowTeam::lane(); m < args.size; m += kThreads)
      if (args.blank[row * args.size + m] == 0) last = static_cast<std::int32_t>(m + 1);
    last = RowTeam::reduce(last, Larger{});
    if (RowTeam::lane() == 0) args.ends[row] = last;
  }
}

__device__ inline float score_of(const MemoryTakeArgs& args, std::int64_t query, std::int64_t m) {
  return args.blank[m] != 0 ? static_cast<float>(kMemoryEmptyScore)
                            : static_cast<const float*>(args.scores)[query * args.score_stride + m];
}

// The weight of a score in its bucket, before division by their sum. The difference of two numbers that are
// so close is exact in f32, so f64 is not needed.
__device__ inline float weight_of(float best, float score) {
  const float gap = best - score;
  if (gap > static_cast<float>(kMemoryNegligible / kMemorySharpness)) return 0.0f;
  return static_cast<float>(exp(-kMemorySharpness * static_cast<double>(gap)));
}

__global__ void bucket_kernel(MemoryTakeArgs args) {
  const std::int64_t end = *args.end;
  for (std::int64_t query = blockIdx.x; query < args.queries; query += gridDim.x)
    for (std::int64_t bucket = threadIdx.x; bucket < args.topk; bucket += kThreads) {
      const std::int64_t place = query * args.topk + bucket;
      if (bucket >= end) {
        args.chosen[place] = kNone;
        continue;
      }
      float best = score_of(args, query, bucket);
      std::int64_t first = bucket;
      for (std::int64_t m = bucket + args.topk; m < end; m += args.topk)
        if (const float score = score_of(args, query, m); score > best) {
          best = score;
          first = m;
        }
      float total = 0;
      for (std::int64_t m = bucket; m < end; m += args.topk)
        total += weight_of(best, score_of(args, query, m));
      args.chosen[place] = total == 1.0f ? static_cast<std::int32_t>(first) : kSeveral;
      args.best[2 * place] = best;
      args.best[2 * place + 1] = total;
    }
}

// Maps scores to integers in the same order; NaN comes above all numbers, so that it shows in the result.
__device__ inline unsigned order_of(float score) {
  const unsigned bits = __float_as_uint(score + 0.0f);  // -0 becomes 0
  if (score != score) return 0xffffffffu;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

constexpr int kWarps = kThreads / 32;
static_assert(kThreads == 256);  // one thread for each value of a byte

// How many threads of lower number in the block have `flag` set, and how many in total. All threads must call
// it.
struct FlagCount {
  int before, all;
};
__device__ inline FlagCount count_flags(bool flag, int* of_warps) {
  const unsigned votes = __ballot_sync(0xffffffffu, flag);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  if (lane == 0) of_warps[warp] = __popc(votes);
  __syncthreads();
  FlagCount flags{__popc(votes & ((1u << lane) - 1)), 0};
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) flags.before += of_warps[i];
    flags.all += of_warps[i];
  }
  __syncthreads();  // the next call overwrites the shared counts
  return flags;
}

__global__ void exact_kernel(MemoryTakeArgs args) {
  __shared__ unsigned histogram[256];
  __shared__ unsigned shared_border;
  __shared__ int shared_wanted;
  __shared__ int of_warps[kWarps];
  const std::int64_t end = *args.end;
  for (std::int64_t query = blockIdx.x; query < args.queries; query += gridDim.x) {
    std::int32_t* const chosen = args.chosen + query * args.topk;
    const std::int64_t count = min(args.topk, end);
    unsigned border = 0;                   // the bytes found so far
    int wanted = static_cast<int>(count);  // how many of the scores that agree with `border` are taken
    for (int shift = 24; count > 0 && shift >= 0; shift -= 8) {
      histogram[threadIdx.x] = 0;
      __syncthreads();
      for (std::int64_t m = threadIdx.x; m < end; m += kThreads) {
        const unsigned order = order_of(score_of(args, query, m));
        if (shift == 24 || order >> (shift + 8) == border) atomicAdd(&histogram[order >> shift & 255u], 1u);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        int byte = 255;
        for (; static_cast<int>(histogram[byte]) < wanted; --byte)
          wanted -= static_cast<int>(histogram[byte]);
        shared_border = border << 8 | static_cast<unsigned>(byte);
        shared_wanted = wanted;
      }
      __syncthreads();
      border = shared_border;
      wanted = shared_wanted;
    }
    std::int64_t taken = 0;
    int equal_before = 0;
    for (std::int64_t tile = 0; taken < count; tile += kThreads) {
      const std::int64_t m = tile + threadIdx.x;
      const unsigned order = m < end ? order_of(score_of(args, query, m)) : 0;
      const bool equal = m < end && order == border;
      const FlagCount of_equal = count_flags(equal, of_warps);
      const bool takes = m < end && (order > border || (equal && equal_before + of_equal.before < wanted));
      const FlagCount flags = count_flags(takes, of_warps);
      if (takes) chosen[taken + flags.before] = static_cast<std::int32_t>(m);
      taken += flags.all;
      equal_before += of_equal.all;
    }
    for (std::int64_t place = count + threadIdx.x; place < args.topk; place += kThreads)
      chosen[place] = kNone;
    __syncthreads();  // the next query overwrites the shared numbers
  }
}

__global__ void take_kernel(MemoryTakeArgs args) {
  using RowTeam = Team<32>;
  const float* const keys = static_cast<const float*>(args.keys);
  const float* const values = static_cast<const float*>(args.values);
  const std::int64_t end = *args.end;
  for (std::int64_t row = RowTeam::first_row(); row < args.queries * args.topk; row += RowTeam::row_step()) {
    float* const key = static_cast<float*>(args.taken_keys) + row * args.stride;
    float* const value = static_cast<float*>(args.taken_values) + row * args.stride;
    const std::int32_t one = args.chosen[row];
    const std::int64_t query = row / args.topk, bucket = row % args.topk;
    for (std::int64_t c = RowTeam::lane(); c < args.head_dim; c += 32) {
      float of_key = 0, of_value = 0;
      if (one >= 0) {
        of_key = keys[one * args.stride + c];
        of_value = values[one * args.stride + c];
      } else if (one == kSeveral) {
        const float best = args.best[2 * row], total = args.best[2 * row + 1];
        for (std::int64_t m = bucket; m < end; m += args.topk) {
          const float weight = weight_of(best, score_of(args, query, m)) / total;
          if (weight == 0.0f) continue;
          of_key += weight * keys[m * args.stride + c];
          of_value += weight * values[m * args.stride + c];
        }
      }
      key[c] = of_key;
      value[c] = of_value;
    }
  }
}

}  // namespace

void memory_mark(const MemoryMarkArgs& args) {
  require_f32("memory_search", args.dtype);
  launch("memory_mark", mark_kernel,
         grid_for(args.batch * args.size * args.heads, Team<32>::kRowsPerBlock, 64), kThreads, args);
  launch("memory_ends", ends_kernel, grid_for(args.batch * args.heads, 1, 64), kThreads, args);
}

void memory_take(const MemoryTakeArgs& args) {
  require_f32("memory_search", args.dtype);
  launch("memory_choose", args.exact ? exact_kernel : bucket_kernel, grid_for(args.queries, 1, 64), kThreads,
         args);
  launch("memory_take", take_kernel, grid_for(args.queries * args.topk, Team<32>::kRowsPerBlock, 64),
         kThreads, args);
}

}  // namespace eddy::cuda
