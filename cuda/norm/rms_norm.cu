// Root-mean-square normalisation of rows and its gradient.
//
//   y  = x rstd weight
//   dx = rstd (g - n mean(g n))     g = dy weight,  n = x rstd
//
// Rows of whole groups of 16 bytes, up to kLongestRegisterRow entries, use the kernels of norm.cuh. The
// kernels here are for other rows, and for the partial sums of few rows.
//
//   mapping        forward and dx: a warp per row of up to 1024 entries, a block per longer row. Partial sums
//                  of dweight: a block of 32 columns x 8 rows for every 32 columns and every kNormBlockRows
//                  rows, as in layer_norm.cu.
//   shared memory  8 numbers (32 bytes) per block for rows, 1 KiB (1,024 bytes) for the partial sums
//   bytes moved    forward: x and y once, and delta and the sum for a norm of a sum, with the table from the
//                  cache: the least. Backward: dy and x twice, 5 row reads and writes where 3 are the least,
//                  and the gradient of the sum.
#include "cuda/core/install.h"
#include "cuda/norm/norm.cuh"
#include "ops/norm/rms_norm.h"

namespace eddy::cuda {
namespace {

template <int Threads, class T>
__global__ void forward_kernel(RmsNormArgs args) {
  using Rows = Team<Threads>;
  const float* const weight = static_cast<const float*>(args.weight);
  const float count = static_cast<float>(args.width), eps = static_cast<float>(args.eps);
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const T* const x = row_to_norm<Threads, T>(args, row);
    T* const y = static_cast<T*>(args.y) + row * args.y_stride;
    const float* const place =
        args.table == nullptr ? nullptr
                              : static_cast<const float*>(args.table) + row % args.table_rows * args.width;
    float squares = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads)
      squares += static_cast<float>(x[i]) * static_cast<float>(x[i]);
    const float rstd = 1.0f / sqrtf(Rows::reduce(squares, Plus{}) / count + eps);
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      const float n = static_cast<float>(x[i]) * rstd;
      const float scaled = weight != nullptr ? n * weight[i] : n;
      y[i] = static_cast<T>(place != nullptr ? scaled + place[i] : scaled);
    }
    if (args.rstd != nullptr && Rows::lane() == 0) static_cast<float*>(args.rstd)[row] = rstd;
  }
}

// dx may be dy.
template <int Threads, class T>
__global__ void dx_kernel(RmsNormBackwardArgs args) {
  using Rows = Team<Threads>;
  const float* const weight = static_cast<const float*>(args.weight);
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride;
    const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* const dx = static_cast<T*>(args.dx) + row * args.dx_stride;
    const float rstd = static_cast<const float*>(args.rstd)[row];
    float sum_gx = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      const float product = static_cast<float>(dy[i]) * static_cast<float>(x[i]);
      sum_gx += weight != nullptr ? product * weight[i] : product;
    }
    const float mean_gn = Rows::reduce(sum_gx, Plus{}) * rstd / static_cast<float>(args.width);
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      const float g = static_cast<float>(dy[i]) * (weight != nullptr ? weight[i] : 1.0f);
      set_dx<T>(args, row * args.width + i, dx[i], rstd * (g - static_cast<float>(x[i]) * rstd * mean_gn));
    }
  }
}

// partials[block, column] = partial_beta * itself + the sum of dy n over the block's rows.
template <class T>
__global__ void partials_kernel(RmsNormBackwardArgs args) {
  __shared__ float sums[kNormLanes][kNormColumns];
  const int column_in_tile = static_cast<int>(threadIdx.x) % kNormColumns,
            lane = static_cast<int>(threadIdx.x) / kNormColumns;
  const std::int64_t tiles = norm_tiles(args.width);
  const std::int64_t blocks = (args.rows + kNormBlockRows - 1) / kNormBlockRows;
  for (std::int64_t item = blockIdx.x; item < tiles * blocks; item += gridDim.x) {
    const std::int64_t column = item % tiles * kNormColumns + column_in_tile, block = item / tiles;
    const std::int64_t last = min((block + 1) * kNormBlockRows, args.rows);
    float dweight = 0;
    if (column < args.width)
      for (std::int64_t row = block * kNormBlockRows + lane; row < last; row += kNormLanes)
        dweight += static_cast<float>(static_cast<const T*>(args.dy)[row * args.dy_stride + column]) *
                   (static_cast<float>(static_cast<const T*>(args.x)[row * args.x_stride + column]) *
                    static_cast<const float*>(args.rstd)[row]);
    sums[lane][column_in_tile] = dweight;
    __syncthreads();
    if (lane == 0 && column < args.width) {
      float sum = 0;
      for (int i = 0; i < kNormLanes; ++i) sum += sums[i][column_in_tile];
      float& to = static_cast<float*>(args.dweight_partials)[block * args.width + column];
      to = args.partial_beta == 0.0f ? sum : args.partial_beta * to + sum;
    }
    __syncthreads();  // the next item overwrites the shared sums
  }
}

template <class T>
void backward(const RmsNormBackwardArgs& args) {
  launch_norm_backward<T>("rms_norm_backward", partials_kernel<T>, dx_kernel<32, T>, dx_kernel<kThreads, T>,
                          args.dweight_partials != nullptr, args);
}

}  // namespace

void install_rms_norm() {
  constexpr int kCuda = static_cast<int>(DeviceType::cuda);
  rms_norm_forward_slot.function[kCuda] = [](const RmsNormArgs& args) {
    for_activations("rms_norm", args.dtype, [&](auto* type) {
      using T = StoredIn<decltype(type)>;
      launch_norm<T>("rms_norm", forward_kernel<32, T>, forward_kernel<kThreads, T>, args);
    });
  };
  rms_norm_backward_slot.function[kCuda] = [](const RmsNormBackwardArgs& args) {
    for_activations("rms_norm", args.dtype, [&](auto* type) { backward<StoredIn<decltype(type)>>(args); });
  };
}

}  // namespace eddy::cuda
