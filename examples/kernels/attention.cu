// One kernel in four versions, from the plainest to tensor cores: causal attention forward in bf16 with heads
// of size H = 64.
//
//   y = softmax(q k^T / sqrt(H)) v
//
// Each version is checked against loops on the CPU, then timed at a length that fills a GPU. README.md has an
// overview and a table. Version 4 is in attention_wgmma.cu.
//
// All tensors are [heads, time, H], where `heads` counts those of all sequences. The work is 4 H operations
// for each visible pair of a query and a key. The least traffic is q, k, v and y once.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "cuda/core/shared_launch.cuh"
#include "cuda/core/warp_matrix.cuh"
#include "cuda/runtime/context.h"
#include "cuda/runtime/device.h"
#include "examples/kernels/attention.h"
#include "ops/backends.h"
#include "ops/core/op_spec.h"
#include "tensor/base/error.h"

using namespace eddy;
using namespace eddy::cuda;
using namespace eddy::example;

namespace {

// ---- version 1: a row at a time
//
// One block of 64 threads for each query. The scores lie in shared memory, 4 bytes for each key, which limits
// the length. A thread computes every 64th score, then one element of the result.
//
// Every query reads all its keys and values: 4 H bytes for 4 H operations. One operation per byte is far
// below what keeps any GPU busy, so the second-level cache is the bound. Reads of k are not coalesced either:
// neighbouring threads of a warp read 2 bytes each from rows 128 bytes apart, so one read of 32 threads
// touches 32 memory sectors, and most of each sector is fetched again for the next element.
__global__ void one_row_kernel(Attention x) {
  float* const weights = shared_memory();
  __shared__ float part[H];
  const int thread = static_cast<int>(threadIdx.x), query = static_cast<int>(blockIdx.x) % x.time;
  const std::int64_t head = blockIdx.x / static_cast<unsigned>(x.time), start = head * x.time * H;
  const bf16* const q = x.q + start + query * H;

  float top = -INFINITY;
  for (int key = thread; key <= query; key += H) {
    float score = 0;
    for (int e = 0; e < H; ++e)
      score += static_cast<float>(q[e]) * static_cast<float>(x.k[start + key * H + e]);
    weights[key] = score * kScale;
    top = fmaxf(top, weights[key]);
  }
  part[thread] = top;
  __syncthreads();
  for (int i = 0; i < H; ++i) top = fmaxf(top, part[i]);  // the largest score: no exponential overflows
  for (int key = thread; key <= query; key += H) weights[key] = expf(weights[key] - top);
  __syncthreads();
  float sum = 0, mixed = 0;
  for (int key = 0; key <= query; ++key) {
    sum += weights[key];
    mixed += weights[key] * static_cast<float>(x.v[start + key * H + thread]);
  }
  x.y[start + query * H + thread] = bf16(mixed / sum);
}

// ---- version 2: tiles in shared memory, online softmax
//
// One block of 64 threads for 64 queries. A thread has one query, with its q and its result in registers. The
// block walks over tiles of 32 keys. It reads k and v of a tile from memory once for all 64 queries: 64
// operations per byte instead of one. The scores are never stored, so the length has no limit.
//
// Online softmax (M. Milakov, N. Gimelshein, 2018) needs no second pass over the row. It keeps the largest
// score so far and the sum of exponentials relative to it. When a larger score comes, the sums so far are
// scaled by exp(old - new).
//
// All threads of a warp read the same element of the tile at a time, which shared memory serves as one read.
// Each 16 bytes read feed 4 multiply-adds. The bound is now the f32 units, while the tensor cores are idle.
__global__ void __launch_bounds__(64) tiled_kernel(Attention x) {
  constexpr int kKeys = 32;
  __shared__ float keys[kKeys][H], values[kKeys][H];
  const int thread = static_cast<int>(threadIdx.x), tiles = (x.time + 63) / 64;
  const int first = static_cast<int>(blockIdx.x) % tiles * 64, query = first + thread;
  const std::int64_t start = std::int64_t{blockIdx.x / static_cast<unsigned>(tiles)} * x.time * H;
  const bool valid = query < x.time;

  float q[H], mixed[H] = {}, top = -INFINITY, sum = 0;
  for (int e = 0; e < H; ++e) q[e] = valid ? kScale * static_cast<float>(x.q[start + query * H + e]) : 0.0f;
  const int end = min(first + 64, x.time);  // no query of the block sees later keys
  for (int key = 0; key < end; key += kKeys) {
    __syncthreads();  // all threads have read the previous tile
    for (int i = thread; i < kKeys * H; i += 64) {
      const bool inside = key + i / H < x.time;
      keys[i / H][i % H] = inside ? static_cast<float>(x.k[start + key * H + i]) : 0.0f;
      values[i / H][i % H] = inside ? static_cast<float>(x.v[start + key * H + i]) : 0.0f;
    }
    __syncthreads();
    for (int row = 0; row < kKeys && key + row <= query; ++row) {
      float score = 0;
#pragma unroll
      for (int e = 0; e < H; ++e) score += q[e] * keys[row][e];
      if (score > top) {
        const float shrink = expf(top - score);
        top = score;
        sum *= shrink;
#pragma unroll
        for (int e = 0; e < H; ++e) mixed[e] *= shrink;
      }
      const float p = expf(score - top);
      sum += p;
#pragma unroll
      for (int e = 0; e < H; ++e) mixed[e] += p * values[row][e];
    }
  }
  if (!valid) return;
#pragma unroll
  for (int e = 0; e < H; ++e) x.y[start + query * H + e] = bf16(mixed[e] / sum);
}

// ---- version 3: tensor cores
//
// One block of 4 warps for 64 queries, 16 for each warp, and tiles of 64 keys. One instruction of a warp
// multiplies a 16 x 16 by a 16 x 8 matrix of bf16 with f32 sums: 4,096 operations, spread over the registers
// of its 32 threads (cuda/core/warp_matrix.cuh). Let g = lane / 4 and t = lane % 4. Of 8 columns of scores a
// thread has rows g and g + 8 and columns 2 t and 2 t + 1. The maximum of a row lies in 4 threads: two
// shuffles.
//
// The second product uses a trick of FlashAttention-2 (T. Dao, 2023). The scores come out of the first
// product in the register layout that the left operand of the second needs. Rounded to bf16, two to a
// register, they are that operand, so the probabilities never leave the registers.
//
// Rows of a tile are H + 8 elements apart: 144 bytes, an odd multiple of 16, so the 8 rows that ldmatrix
// reads at once lie in different banks. v is copied asynchronously while q k^T is computed, and the next k
// while the probabilities multiply v.
//
// The next bound is reading shared memory. A warp reads a whole tile of k and v, 4 * 64 H bytes, for 4 * 16 *
// 64 H operations: 16 per byte. At 128 bytes a clock that is 2,048 operations, which is all that a
// multiprocessor of an A100 can do and half of what one of an H100 can.
constexpr int kTile = 64, kRow = H + 8;

__device__ void start_tile(const bf16* from, int first, int time, bf16* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * H / 8; i += 128) {
    const int row = i / (H / 8), column = i % (H / 8) * 8;
    const bool inside = first + row < time;
    start_copy(to + row * kRow + column, inside ? from + (first + row) * H + column : from, inside);
  }
}

__global__ void __launch_bounds__(128) tensor_core_kernel(Attention x) {
  bf16* const queries = reinterpret_cast<bf16*>(shared_memory());
  bf16 *const keys = queries + kTile * kRow, *const values = keys + kTile * kRow;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4, t = lane % 4, tiles = (x.time + kTile - 1) / kTile;
  const int first = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kTile;  // long rows first
  const std::int64_t start = std::int64_t{blockIdx.x / static_cast<unsigned>(tiles)} * x.time * H;

  start_tile(x.q + start, first, x.time, queries);
  start_tile(x.k + start, 0, x.time, keys);
  finish_copies();
  __syncthreads();
  std::uint32_t q[H / 16][4];
  for (int k = 0; k < H / 16; ++k)
    load_matrices(q[k], queries + (16 * warp + lane % 16) * kRow + 16 * k + lane / 16 * 8);

  float mixed[H / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int key = 0; key <= first; key += kTile) {
    finish_copies();
    __syncthreads();  // the keys have arrived; the previous values have been read
    start_tile(x.v + start, key, x.time, values);
    float scores[kTile / 8][4] = {};
#pragma unroll
    for (int k = 0; k < H / 16; ++k)
#pragma unroll
      for (int n = 0; n < kTile / 16; ++n) {
        std::uint32_t b[4];  // two operands: 16 elements of 8 keys
        load_matrices(b, keys + (16 * n + lane % 8 + lane / 16 * 8) * kRow + 16 * k + lane / 8 % 2 * 8);
        multiply_matrices(scores[2 * n], q[k], b[0], b[1]);
        multiply_matrices(scores[2 * n + 1], q[k], b[2], b[3]);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // the two rows of a thread
      const int query = first + 16 * warp + g + 8 * half;
      float larger = top[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const bool visible = key + 8 * n + 2 * t + e % 2 <= query;
          scores[n][e] = visible ? scores[n][e] * kScale2 : -INFINITY;
          larger = fmaxf(larger, scores[n][e]);
        }
      larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 1));
      larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 2));
      const float shrink = fast_exp2(top[half] - larger);
      top[half] = larger;
      sum[half] *= shrink;  // this thread's part; the four threads of a row add theirs at the end
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[n][e] = fast_exp2(scores[n][e] - larger);
          sum[half] += scores[n][e];
        }
#pragma unroll
      for (int h = 0; h < H / 8; ++h) {
        mixed[h][2 * half] *= shrink;
        mixed[h][2 * half + 1] *= shrink;
      }
    }
    finish_copies();
    __syncthreads();  // the values have arrived; the keys have been read
    if (key + kTile <= first) start_tile(x.k + start, key + kTile, x.time, keys);
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      const std::uint32_t a[4] = {
          pack(scores[2 * n][0], scores[2 * n][1]), pack(scores[2 * n][2], scores[2 * n][3]),
          pack(scores[2 * n + 1][0], scores[2 * n + 1][1]), pack(scores[2 * n + 1][2], scores[2 * n + 1][3])};
#pragma unroll
      for (int h = 0; h < H / 16; ++h) {
        std::uint32_t b[4];  // two operands: 16 keys of 8 elements, transposed by the load
        load_matrices_transposed(b, values + (16 * n + lane % 16) * kRow + 16 * h + lane / 16 * 8);
        multiply_matrices(mixed[2 * h], a, b[0], b[1]);
        multiply_matrices(mixed[2 * h + 1], a, b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = sum[half] + __shfl_xor_sync(0xffffffffu, sum[half], 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    const int query = first + 16 * warp + g + 8 * half;
    if (query >= x.time) continue;
#pragma unroll
    for (int h = 0; h < H / 8; ++h)
      *reinterpret_cast<std::uint32_t*>(x.y + start + query * H + 8 * h + 2 * t) =
          pack(mixed[h][2 * half] / total, mixed[h][2 * half + 1] / total);
  }
}

// ---- checking and timing

struct Version {
  const char* name;
  void (*kernel)(Attention);
  bool row_blocks;  // one block for each query, else for each 64 queries
  int threads;      // 0: version 4, launched by run_wgmma
};
const Version kVersions[] = {{"1 a row at a time", one_row_kernel, true, 64},
                             {"2 tiles, online softmax", tiled_kernel, false, 64},
                             {"3 tensor cores", tensor_core_kernel, false, 128},
                             {"4 wgmma", nullptr, false, 0}};

// Returns the versions that this GPU can run: the last one needs compute capability 9.0.
std::span<const Version> versions() {
  std::string why_none;
  for (const DeviceInfo& device : devices(&why_none))
    if (device.index == device_index() && device.major == 9 && device.minor == 0) return kVersions;
  std::printf("4 wgmma: left out, for it needs a GPU of compute capability 9.0\n");
  return std::span(kVersions).first(3);
}

struct Problem {
  int heads, time;
  Tensor q, k, v, y;  // on the GPU
};

Problem problem_of(int heads, int time) {
  const auto normals = [&](const char* stream) {
    return raw::to_device(raw::cast(sample_normal({heads, time, H}, stream), Dtype::bf16), cuda_device());
  };
  return {heads,        time,         normals("q"),
          normals("k"), normals("v"), Tensor::empty({heads, time, H}, Dtype::bf16, cuda_device())};
}

void run(const Version& version, const Problem& p) {
  const Attention args{static_cast<const bf16*>(p.q.raw_data()), static_cast<const bf16*>(p.k.raw_data()),
                       static_cast<const bf16*>(p.v.raw_data()), static_cast<bf16*>(p.y.raw_data()), p.time};
  if (version.threads == 0) return run_wgmma(args, p.heads);
  const int blocks = version.row_blocks ? p.time : (p.time + 63) / 64;
  const int shared_bytes = version.row_blocks       ? 4 * p.time
                           : version.threads == 128 ? 3 * 2 * kTile * kRow
                                                    : 0;
  launch_shared(version.name, version.kernel, std::int64_t{p.heads} * blocks, version.threads, shared_bytes,
                args);
}

// Returns the result of loops in f64, from the bf16 values on the GPU.
std::vector<double> expected(const Problem& p) {
  const auto on_cpu = [](const Tensor& x) {
    return raw::cast(raw::to_device(x, kCpu), Dtype::f64).to_vector<double>();
  };
  const std::vector<double> q = on_cpu(p.q), k = on_cpu(p.k), v = on_cpu(p.v);
  std::vector<double> y(q.size()), weights(static_cast<std::size_t>(p.time));
  for (int row = 0; row < p.heads * p.time; ++row) {
    const int query = row % p.time;
    const auto at = [&](int key, int e) { return static_cast<std::size_t>((row - query + key) * H + e); };
    double top = -INFINITY, sum = 0;
    for (int key = 0; key <= query; ++key) {
      double& score = weights[static_cast<std::size_t>(key)] = 0;
      for (int e = 0; e < H; ++e) score += q[at(query, e)] * k[at(key, e)] / 8;
      top = fmax(top, score);
    }
    for (int key = 0; key <= query; ++key)
      sum += weights[static_cast<std::size_t>(key)] = exp(weights[static_cast<std::size_t>(key)] - top);
    for (int key = 0; key <= query; ++key)
      for (int e = 0; e < H; ++e)
        y[at(query, e)] += weights[static_cast<std::size_t>(key)] / sum * v[at(key, e)];
  }
  return y;
}

// Whether the version is right. The probabilities and the result are rounded to bf16, 2^-8 each, of values
// not above some 4, the largest element of v.
bool right(const Version& version, const Problem& p, const std::vector<double>& want) {
  raw::fill(p.y, NAN);
  run(version, p);
  const std::vector<double> got = raw::cast(raw::to_device(p.y, kCpu), Dtype::f64).to_vector<double>();
  double worst = 0;  // stays NaN after the first NaN
  for (std::size_t i = 0; i < got.size() && !std::isnan(worst); ++i)
    if (const double error = std::abs(got[i] - want[i]); !(error <= worst)) worst = error;
  const bool fine = worst <= 2 * 4 * 0x1p-8;
  std::printf("%-26s largest error %.4f at time %d: %s\n", version.name, worst, p.time,
              fine ? "right" : "WRONG");
  return fine;
}

double best_ms(const Version& version, const Problem& p) {
  Timer timer;
  double best = 0;
  for (int i = -2; i < 10; ++i) {
    timer.start();
    run(version, p);
    const double ms = timer.stop();
    if (i == 0 || (i > 0 && ms < best)) best = ms;
  }
  return best;
}

}  // namespace

int main() {
  try {
    cuda_device();
  } catch (const DeviceError& error) {
    std::printf("SKIPPED: no version runs without a GPU: %s\n", error.what());
    return EXIT_SUCCESS;
  }
  const std::span<const Version> all = versions();
  bool all_right = true;
  for (const int time : {1, 64, 100, 200}) {
    const Problem small = problem_of(2, time);
    const std::vector<double> want = expected(small);
    for (const Version& version : all) all_right = right(version, small, want) && all_right;
  }
  const Problem large = problem_of(64, 4096);
  const double pairs = 64.0 * 4096 * 4097 / 2;
  for (const Version& version : all) {
    const double ms = best_ms(version, large);
    std::printf("%-26s %9.3f ms  %7.1f TFLOP/s  (64 heads of 64, time 4096)\n", version.name, ms,
                4 * H * pairs / ms / 1e9);
  }
  return all_right ? EXIT_SUCCESS : EXIT_FAILURE;
}
