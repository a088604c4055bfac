// Layer norm and RMS norm of rows and their gradients, by one template: without `Centred` there is no mean.
//
//   y  = (x - mean) rstd weight + bias             layer norm
//   y  = x rstd weight + a row of a table          RMS norm
//   dx = rstd (g - mean(g) - n mean(g n))          g = dy weight, n = (x - mean) rstd; RMS norm without mean(g)
//
// Rows of whole groups of 16 bytes, up to kLongestRegisterRow entries, are kept in registers (register_row_norm.cu).
//
// Other rows, and the partial sums of few rows.
//   mapping        forward and dx: a warp per row of up to 1024 entries, a block per longer row. Partial sums
//                  of dweight and dbias: a block of 32 columns x 8 rows for every 32 columns and every
//                  norm_block_rows rows; thread row t adds rows t, t + 8, ..., then the 8 sums are added in
//                  order.
//   shared memory  8 numbers (32 bytes) per block for rows, 2 KiB (2,048 bytes) for the partial sums
//   bytes moved    forward: x and y once, and delta and the sum for a norm of a sum, the least; passes over a
//                  row after the first find it in the cache. Backward: dy and x twice, that is 5 row reads
//                  and writes where 3 are the least, and once the gradient of the sum.
#include "cuda/norm/row_norm.cuh"

#include "cuda/core/register_rows.cuh"
#include "cuda/core/team.cuh"

namespace eddy::cuda {
namespace {

// Partial sums of the parameters' gradients: a block of kNormColumns columns x kNormLanes rows for every
// kNormColumns columns and every norm_block_rows rows.
constexpr int kNormColumns = 32, kNormLanes = kThreads / kNormColumns;

// Returns the number of column blocks of a partial sum.
__host__ __device__ constexpr std::int64_t norm_tiles(std::int64_t width) {
  return (width + kNormColumns - 1) / kNormColumns;
}

// Returns the row to normalise: of x, or of x + delta. Each thread writes the entries of the sum that it
// reads.
template <int Threads, class T>
__device__ const T* row_to_norm(const RowNormArgs& args, std::int64_t row) {
  const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
  if (args.delta == nullptr) return x;
  const T* const delta = static_cast<const T*>(args.delta) + row * args.delta_stride;
  T* const sum = static_cast<T*>(args.sum) + row * args.width;
  for (std::int64_t i = Team<Threads>::lane(); i < args.width; i += Threads)
    sum[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(delta[i]));
  return sum;
}

// dx = dsum[at] + gradient if there is a dsum, else dx_beta dx + gradient.
template <class T>
__device__ void set_dx(const RowNormBackwardArgs& args, std::int64_t at, T& dx, float gradient) {
  if (args.dsum != nullptr)
    dx = static_cast<T>(static_cast<float>(static_cast<const T*>(args.dsum)[at]) + gradient);
  else
    add_to(dx, args.dx_beta, gradient);
}

template <bool Centred, int Threads, class T>
__global__ void forward_kernel(RowNormArgs args) {
  using RowTeam = Team<Threads>;
  const float* const weight = static_cast<const float*>(args.weight);
  const float count = static_cast<float>(args.width), eps = static_cast<float>(args.eps);
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const T* const x = row_to_norm<Threads, T>(args, row);
    T* const y = static_cast<T*>(args.y) + row * args.y_stride;
    const float* const shift = shift_of<Centred>(args, row);
    float mean = 0;
    if constexpr (Centred)
      mean = RowTeam::sum(0, args.width, [=](std::int64_t i) { return static_cast<float>(x[i]); }) / count;
    // The squares of deviations: sum(x^2) - n mean^2 would cancel.
    const float squares = RowTeam::sum(0, args.width, [=](std::int64_t i) {
      return (static_cast<float>(x[i]) - mean) * (static_cast<float>(x[i]) - mean);
    });
    const float rstd = 1.0f / sqrtf(squares / count + eps);
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads) {
      const float n = (static_cast<float>(x[i]) - mean) * rstd;
      y[i] = static_cast<T>((weight != nullptr ? n * weight[i] : n) + (shift != nullptr ? shift[i] : 0.0f));
    }
    if (RowTeam::lane() != 0) continue;
    if (Centred && args.mean != nullptr) static_cast<float*>(args.mean)[row] = mean;
    if (args.rstd != nullptr) static_cast<float*>(args.rstd)[row] = rstd;
  }
}

// dx may be dy: each thread reads its own entries of dy again before it overwrites them.
template <bool Centred, int Threads, class T>
__global__ void dx_kernel(RowNormBackwardArgs args) {
  using RowTeam = Team<Threads>;
  const float* const weight = static_cast<const float*>(args.weight);
  const float count = static_cast<float>(args.width);
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride;
    const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* const dx = static_cast<T*>(args.dx) + row * args.dx_stride;
    const float mean = Centred ? static_cast<const float*>(args.mean)[row] : 0.0f,
                rstd = static_cast<const float*>(args.rstd)[row];
    float sum_g = 0, sum_gn = 0;
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads) {
      const float g = static_cast<float>(dy[i]) * (weight != nullptr ? weight[i] : 1.0f);
      sum_g += g;
      sum_gn += g * ((static_cast<float>(x[i]) - mean) * rstd);
    }
    const float mean_gn = RowTeam::reduce(sum_gn, Plus{}) / count;
    float mean_g = 0;
    if constexpr (Centred) mean_g = RowTeam::reduce(sum_g, Plus{}) / count;
    // A row of one element is its own mean. Its dx is exactly 0, where rounding would leave g - g times a
    // large rstd.
    const float factor = Centred && args.width == 1 ? 0.0f : rstd;
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads) {
      const float g = static_cast<float>(dy[i]) * (weight != nullptr ? weight[i] : 1.0f);
      const float n = (static_cast<float>(x[i]) - mean) * rstd;
      set_dx<T>(args, row * args.width + i, dx[i], factor * (g - mean_g - n * mean_gn));
    }
  }
}

// partials[block, column] = partial_beta * itself + the sums of dy n and of dy over the block's rows.
template <bool Centred, class T>
__global__ void partials_kernel(RowNormBackwardArgs args) {
  __shared__ float dweight_sums[kNormLanes][kNormColumns], dbias_sums[kNormLanes][kNormColumns];
  const int column_in_tile = static_cast<int>(threadIdx.x) % kNormColumns,
            lane = static_cast<int>(threadIdx.x) / kNormColumns;
  const std::int64_t tiles = norm_tiles(args.width);
  const std::int64_t each = norm_block_rows(true, args.rows), blocks = (args.rows + each - 1) / each;
  for (std::int64_t item = blockIdx.x; item < tiles * blocks; item += gridDim.x) {
    const std::int64_t column = item % tiles * kNormColumns + column_in_tile, block = item / tiles;
    const std::int64_t last = min((block + 1) * each, args.rows);
    float dweight = 0, dbias = 0;
    if (column < args.width) {
      for (std::int64_t row = block * each + lane; row < last; row += kNormLanes) {
        const float dy = static_cast<float>(static_cast<const T*>(args.dy)[row * args.dy_stride + column]);
        const float x = static_cast<float>(static_cast<const T*>(args.x)[row * args.x_stride + column]);
        const float mean = Centred ? static_cast<const float*>(args.mean)[row] : 0.0f;
        dweight += dy * ((x - mean) * static_cast<const float*>(args.rstd)[row]);
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

// ---- launching

template <bool Centred, class T>
void forward(const char* name, const RowNormArgs& args) {
  if (rows_fit_registers<T>(args.width)) return register_norm_forward<Centred, T>(name, args);
  launch_rows(name, forward_kernel<Centred, 32, T>, forward_kernel<Centred, kThreads, T>, args.rows,
              args.width, args);
}

// Launches the kernels of a backward pass that are wanted. Partial sums with a kernel of their own come
// first, since dx may overwrite dy.
template <bool Centred, class T>
void backward(const char* name, const RowNormBackwardArgs& args) {
  const bool wants_partials = args.dweight_partials != nullptr || args.dbias_partials != nullptr;
  const bool in_registers = rows_fit_registers<T>(args.width);
  const std::int64_t blocks = norm_blocks({DeviceType::cuda}, args.rows);
  static_assert(kLongestJointRow <= kLongestRegisterRow);
  const bool joint = wants_partials && norm_is_joint(args.dtype, args.rows, args.width);
  if (wants_partials && !joint)
    launch(name, partials_kernel<Centred, T>, grid_for(norm_tiles(args.width) * blocks, 1, 64), kThreads,
           args);
  if (!in_registers && args.dx != nullptr)
    launch_rows(name, dx_kernel<Centred, 32, T>, dx_kernel<Centred, kThreads, T>, args.rows, args.width,
                args);
  if (in_registers && args.rows > 0 && (joint || args.dx != nullptr))
    register_norm_backward<Centred, T>(name, args, joint);
}

}  // namespace

void layer_norm_forward(const RowNormArgs& args) {
  for_activations("layer_norm", args.dtype,
                  [&](auto* type) { forward<true, StoredIn<decltype(type)>>("layer_norm", args); });
}

void layer_norm_backward(const RowNormBackwardArgs& args) {
  for_activations("layer_norm", args.dtype,
                  [&](auto* type) { backward<true, StoredIn<decltype(type)>>("layer_norm_backward", args); });
}

void rms_norm_forward(const RowNormArgs& args) {
  for_activations("rms_norm", args.dtype,
                  [&](auto* type) { forward<false, StoredIn<decltype(type)>>("rms_norm", args); });
}

void rms_norm_backward(const RowNormBackwardArgs& args) {
  for_activations("rms_norm", args.dtype,
                  [&](auto* type) { backward<false, StoredIn<decltype(type)>>("rms_norm_backward", args); });
}

}  // namespace eddy::cuda
