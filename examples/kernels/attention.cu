// One kernel told in versions: causal attention forward, y = softmax(q k^T / sqrt(H)) v, on bf16 with heads
// of H = 64, from the plainest to tensor cores. README.md has the story and the table. Each version is
// checked against loops on the CPU, then timed at a length that fills a GPU. Version 4 is in
// attention_wgmma.cu.
//
// All work on [heads, time, H], `heads` counting those of all sequences. Operations: 4 H to a pair of a query
// and a key it sees; the least bytes: q, k, v and y once.
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
// A block of 64 threads for each query. Its scores lie in shared memory, one for each key, so the length is
// bounded by that memory: 4 bytes to a key. A thread computes every 64th score, then one number of the
// result.
//
// Every query reads all its keys and values: 4 H bytes for 4 H operations. One operation to a byte is far
// below what any GPU needs to be busy: the second-level cache is the bound. And a thread that walks along a
// row of k reads 2 bytes where its neighbour in the warp reads 128 bytes further on: a read of 32 threads
// touches 32 pieces of memory, and most of each piece is fetched again for the next number.
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

// ---- version 2: tiles in shared memory, softmax while walking
//
// A block of 64 threads for 64 queries, a query to a thread with its q and its result in registers. The block
// walks over tiles of 32 keys: k and v of a tile are read from memory once for all 64 queries, 64 operations
// to a byte where version 1 has one, and the scores are never stored, so the length has no bound.
//
// Softmax without having seen the whole row: keep the largest score so far and the sum of exponentials
// relative to it. When a larger one comes, what was summed so far shrinks by exp(old - new). (M. Milakov, N.
// Gimelshein, 2018.)
//
// All threads of a warp read the same number of the tile at a time, which shared memory serves as one read.
// Each 16 bytes read feed 4 multiply-adds: the bound is now the units of f32, on which tensor cores are idle.
__global__ void __launch_bounds__(64) tiled_kernel(Attention x) {
  constexpr int kKeys = 32;
  __shared__ float keys[kKeys][H], values[kKeys][H];
  const int thread = static_cast<int>(threadIdx.x), tiles = (x.time + 63) / 64;
  const int first = static_cast<int>(blockIdx.x) % tiles * 64, query = first + thread;
  const std::int64_t start = std::int64_t{blockIdx.x / static_cast<unsigned>(tiles)} * x.time * H;
  const bool there = query < x.time;

  float q[H], mixed[H] = {}, top = -INFINITY, sum = 0;
  for (int e = 0; e < H; ++e) q[e] = there ? kScale * static_cast<float>(x.q[start + query * H + e]) : 0.0f;
  const int end = min(first + 64, x.time);  // no query of the block sees further
  for (int key = 0; key < end; key += kKeys) {
    __syncthreads();  // the tile before is read
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
  if (!there) return;
#pragma unroll
  for (int e = 0; e < H; ++e) x.y[start + query * H + e] = bf16(mixed[e] / sum);
}

// ---- version 3: tensor cores
//
// A block of 4 warps for 64 queries, 16 to a warp, and tiles of 64 keys. One instruction of a warp multiplies
// a 16 x 16 by a 16 x 8 matrix of bf16 with sums in f32: 4,096 operations, spread over the registers of its
// 32 threads as cuda/core/warp_matrix.cuh says. With g = lane / 4 and t = lane % 4 a thread has, of 8 columns of
// scores, rows g and g + 8 and columns 2 t and 2 t + 1: a row's maximum needs its 4 threads, two shuffles.
//
// The trick of the second product (T. Dao et al., FlashAttention-2, 2023): scores come out of the first one
// spread just as the left operand of the next must be. Rounded to bf16 two to a register, they are that
// operand; the probabilities never leave the registers.
//
// Rows of a tile are H + 8 numbers apart: 144 bytes, an odd number of 16-byte places, so that the 8 rows that
// ldmatrix reads at once lie in different banks. v arrives in the background while q k^T is computed, the
// next k while the probabilities are mixed.
//
// Reads from shared memory are the next bound: a warp reads a whole tile of k and v, 4 * 64 H bytes, for 4 *
// 16 * 64 H operations, 16 to a byte; 128 bytes a clock make 2,048 operations, all that a multiprocessor of
// an A100 can do and half of an H100's.
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
    __syncthreads();  // the keys are there; the values before are read
    start_tile(x.v + start, key, x.time, values);
    float scores[kTile / 8][4] = {};
#pragma unroll
    for (int k = 0; k < H / 16; ++k)
#pragma unroll
      for (int n = 0; n < kTile / 16; ++n) {
        std::uint32_t b[4];  // two operands of 16 numbers of 8 keys
        load_matrices(b, keys + (16 * n + lane % 8 + lane / 16 * 8) * kRow + 16 * k + lane / 8 % 2 * 8);
        multiply_matrices(scores[2 * n], q[k], b[0], b[1]);
        multiply_matrices(scores[2 * n + 1], q[k], b[2], b[3]);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of a thread's two rows
      const int query = first + 16 * warp + g + 8 * half;
      float larger = top[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const bool seen = key + 8 * n + 2 * t + e % 2 <= query;
          scores[n][e] = seen ? scores[n][e] * kScale2 : -INFINITY;
          larger = fmaxf(larger, scores[n][e]);
        }
      larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 1));
      larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 2));
      const float shrink = fast_exp2(top[half] - larger);
      top[half] = larger;
      sum[half] *= shrink;  // this thread's part: the four meet at the end
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
    __syncthreads();  // the values are there; the keys are read
    if (key + kTile <= first) start_tile(x.k + start, key + kTile, x.time, keys);
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      const std::uint32_t a[4] = {
          pack(scores[2 * n][0], scores[2 * n][1]), pack(scores[2 * n][2], scores[2 * n][3]),
          pack(scores[2 * n + 1][0], scores[2 * n + 1][1]), pack(scores[2 * n + 1][2], scores[2 * n + 1][3])};
#pragma unroll
      for (int h = 0; h < H / 16; ++h) {
        std::uint32_t b[4];  // two operands of 16 keys of 8 numbers: transposed on the way
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
  bool row_blocks;  // a block for each query, else for each 64
  int threads;      // 0: version 4, which launches itself
};
const Version kVersions[] = {{"1 a row at a time", one_row_kernel, true, 64},
                             {"2 tiles, online softmax", tiled_kernel, false, 64},
                             {"3 tensor cores", tensor_core_kernel, false, 128},
                             {"4 wgmma", nullptr, false, 0}};

// The versions that this GPU runs: the last one needs 9.0.
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

// Loops in f64 on the numbers that the GPU has.
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

// Whether the version is right: the probabilities and the result are rounded to bf16, 2^-8 each, of numbers
// not above the largest value that is mixed, some 4.
bool right(const Version& version, const Problem& p, const std::vector<double>& want) {
  raw::fill(p.y, NAN);
  run(version, p);
  const std::vector<double> got = raw::cast(raw::to_device(p.y, kCpu), Dtype::f64).to_vector<double>();
  double worst = 0;  // NaN once there is one
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
