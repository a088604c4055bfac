// Layer normalisation of rows and its gradient.
//
//   y  = (x - mean) rstd weight + bias
//   dx = rstd (g - mean(g) - n mean(g n))     g = dy weight,  n = (x - mean) rstd
//
// Rows of whole groups of 16 bytes, up to kLongestRegisterRow entries, use the kernels of norm.cuh. The
// kernels here are for other rows, and for the partial sums of few rows.
//
//   mapping        forward and dx: a warp per row of up to 1024 entries, a block per longer row. Partial sums
//                  of dweight and dbias: a block of 32 columns x 8 rows for every 32 columns and every
//                  kNormBlockRows rows; thread row t adds rows t, t + 8, ..., then the 8 sums are added in
//                  order.
//   shared memory  8 numbers (32 bytes) per block for rows, 2 KiB (2,048 bytes) for the partial sums
//   bytes moved    forward: x and y once, and delta and the sum for a norm of a sum, the least; passes over a
//                  row after the first find it in the cache. Backward: dy and x twice, that is 5 row reads
//                  and writes where 3 are the least, and once the gradient of the sum.
#include "cuda/core/install.h"
#include "cuda/norm/norm.cuh"
#include "ops/norm/layer_norm.h"

namespace eddy::cuda {
namespace {

template <int Threads, class T>
__global__ void forward_kernel(LayerNormArgs args) {
  using Rows = Team<Threads>;
  const float* const weight = static_cast<const float*>(args.weight);
  const float* const bias = static_cast<const float*>(args.bias);
  const float count = static_cast<float>(args.width), eps = static_cast<float>(args.eps);
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const T* const x = row_to_norm<Threads, T>(args, row);
    T* const y = static_cast<T*>(args.y) + row * args.y_stride;
    float sum = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) sum += static_cast<float>(x[i]);
    const float mean = Rows::reduce(sum, Plus{}) / count;
    float squares = 0;  // of deviations: sum(x^2) - n mean^2 would cancel
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads)
      squares += (static_cast<float>(x[i]) - mean) * (static_cast<float>(x[i]) - mean);
    const float rstd = 1.0f / sqrtf(Rows::reduce(squares, Plus{}) / count + eps);
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      const float n = (static_cast<float>(x[i]) - mean) * rstd;
      y[i] = static_cast<T>((weight != nullptr ? n * weight[i] : n) + (bias != nullptr ? bias[i] : 0.0f));
    }
    if (args.mean != nullptr && Rows::lane() == 0) {
      static_cast<float*>(args.mean)[row] = mean;
      static_cast<float*>(args.rstd)[row] = rstd;
    }
  }
}

// dx may be dy: each thread reads its own entries of dy again before it overwrites them.
template <int Threads, class T>
__global__ void dx_kernel(LayerNormBackwardArgs args) {
  using Rows = Team<Threads>;
  const float* const weight = static_cast<const float*>(args.weight);
  const float count = static_cast<float>(args.width);
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride;
    const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* const dx = static_cast<T*>(args.dx) + row * args.dx_stride;
    const float mean = static_cast<const float*>(args.mean)[row],
                rstd = static_cast<const float*>(args.rstd)[row];
    float sum_g = 0, sum_gn = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      const float g = static_cast<float>(dy[i]) * (weight != nullptr ? weight[i] : 1.0f);
      sum_g += g;
      sum_gn += g * ((static_cast<float>(x[i]) - mean) * rstd);
    }
    const float mean_g = Rows::reduce(sum_g, Plus{}) / count, mean_gn = Rows::reduce(sum_gn, Plus{}) / count;
    // A row of one element is its own mean. Its dx is exactly 0, where rounding would leave g - g times a
    // large rstd.
    const float factor = args.width == 1 ? 0.0f : rstd;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      const float g = static_cast<float>(dy[i]) * (weight != nullptr ? weight[i] : 1.0f);
      const float n = (static_cast<float>(x[i]) - mean) * rstd;
      set_dx<T>(args, row * args.width + i, dx[i], factor * (g - mean_g - n * mean_gn));
    }
  }
}

// partials[block, column] = partial_beta * itself + the sums of dy n and of dy over the block's rows.
template <class T>
__global__ void partials_kernel(LayerNormBackwardArgs args) {
  __shared__ float dweight_sums[kNormLanes][kNormColumns], dbias_sums[kNormLanes][kNormColumns];
  const int column_in_tile = static_cast<int>(threadIdx.x) % kNormColumns,
            lane = static_cast<int>(threadIdx.x) / kNormColumns;
  const std::int64_t tiles = norm_tiles(args.width);
  const std::int64_t blocks = (args.rows + kNormBlockRows - 1) / kNormBlockRows;
  for (std::int64_t item = blockIdx.x; item < tiles * blocks; item += gridDim.x) {
    const std::int64_t column = item % tiles * kNormColumns + column_in_tile, block = item / tiles;
    const std::int64_t last = min((block + 1) * kNormBlockRows, args.rows);
    float dweight = 0, dbias = 0;
    if (column < args.width) {
      for (std::int64_t row = block * kNormBlockRows + lane; row < last; row += kNormLanes) {
        const float dy = static_cast<float>(static_cast<const T*>(args.dy)[row * args.dy_stride + column]);
        const float x = static_cast<float>(static_cast<const T*>(args.x)[row * args.x_stride + column]);
        dweight += dy * ((x - static_cast<const float*>(args.mean)[row]) *
                         static_cast<const float*>(args.rstd)[row]);
        dbias += dy;
      }
    }
    dweight_sums[lane][column_in_tile] = dweight;
    dbias_sums[lane][column_in_tile] = dbias;
    __syncthreads();
    if (lane < 2 && column < args.width) {  // the first row of threads writes dweight, the second dbias
      float* const partials = static_cast<float*>(lane == 0 ? args.dweight_partials : args.dbias_partials);
      const auto& sums = lane == 0 ? dweight_sums : dbias_sums;
      if (partials != nullptr) {
        float sum = 0;
        for (int i = 0; i < kNormLanes; ++i) sum += sums[i][column_in_tile];
        float& to = partials[block * args.width + column];
        to = args.partial_beta == 0.0f ? sum : args.partial_beta * to + sum;
      }
    }
    __syncthreads();  // the next item overwrites the shared sums
  }
}

template <class T>
void backward(const LayerNormBackwardArgs& args) {
  launch_norm_backward<T>("layer_norm_backward", partials_kernel<T>, dx_kernel<32, T>, dx_kernel<kThreads, T>,
                          args.dweight_partials != nullptr || args.dbias_partials != nullptr, args);
}

}  // namespace

void install_layer_norm() {
  constexpr int kCuda = static_cast<int>(DeviceType::cuda);
  layer_norm_forward_slot.function[kCuda] = [](const LayerNormArgs& args) {
    for_activations("layer_norm", args.dtype, [&](auto* type) {
      using T = StoredIn<decltype(type)>;
      launch_norm<T>("layer_norm", forward_kernel<32, T>, forward_kernel<kThreads, T>, args);
    });
  };
  layer_norm_backward_slot.function[kCuda] = [](const LayerNormBackwardArgs& args) {
    for_activations("layer_norm", args.dtype, [&](auto* type) { backward<StoredIn<decltype(type)>>(args); });
  };
}

}  // namespace eddy::cuda
