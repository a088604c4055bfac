// Rows brought to unit length, and the gradient.
//
// Mapping: a warp per row of up to 1024 entries, a block per longer row; each thread takes every 32nd or
// 256th entry. Shared memory: 8 numbers, for blocks. Bytes moved: the second pass over a row finds it in the
// cache, so memory sees x and y once, and in the gradient dy, y and dx once: the least.
#include "cuda/install.h"
#include "cuda/numbers.cuh"
#include "cuda/team.cuh"
#include "ops/unit_norm.h"

namespace eddy::cuda {
namespace {

template <int Threads, class T>
__global__ void forward_kernel(UnitNormArgs args) {
  using Rows = Team<Threads>;
  const float eps = static_cast<float>(args.eps);
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const T* const x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* const y = static_cast<T*>(args.y) + row * args.width;
    float squares = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads)
      squares += static_cast<float>(x[i]) * static_cast<float>(x[i]);
    const float length = sqrtf(Rows::reduce(squares, Plus{}) + eps);
    const float scale = unit_norm_plain(args, row) ? 1.0f : 1.0f / length;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads)
      y[i] = static_cast<T>(static_cast<float>(x[i]) * scale);
    if (Rows::lane() == 0) static_cast<float*>(args.scale)[row] = scale;
  }
}

// dx = r (dy - y sum(dy y)) with y = x r.
template <int Threads, class T>
__global__ void backward_kernel(UnitNormBackwardArgs args) {
  using Rows = Team<Threads>;
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const T* const dy = static_cast<const T*>(args.dy) + row * args.dy_stride;
    const T* const y = static_cast<const T*>(args.y) + row * args.width;
    T* const dx = static_cast<T*>(args.dx) + row * args.width;
    const float scale = static_cast<const float*>(args.scale)[row];
    float product = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads)
      product += static_cast<float>(dy[i]) * static_cast<float>(y[i]);
    const float sum = Rows::reduce(product, Plus{}), along = unit_norm_plain(args, row) ? 0.0f : sum;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      add_to(dx[i], args.beta, scale * (static_cast<float>(dy[i]) - static_cast<float>(y[i]) * along));
    }
  }
}

}  // namespace

void install_unit_norm() {
  constexpr int kCuda = static_cast<int>(DeviceType::cuda);
  unit_norm_forward_slot.function[kCuda] = [](const UnitNormArgs& args) {
    for_activations("unit_norm", args.dtype, [&](auto* type) {
      using T = StoredIn<decltype(type)>;
      launch_rows("unit_norm", forward_kernel<32, T>, forward_kernel<kThreads, T>, args.rows, args.width,
                  args);
    });
  };
  unit_norm_backward_slot.function[kCuda] = [](const UnitNormBackwardArgs& args) {
    for_activations("unit_norm", args.dtype, [&](auto* type) {
      using T = StoredIn<decltype(type)>;
      launch_rows("unit_norm_backward", backward_kernel<32, T>, backward_kernel<kThreads, T>, args.rows,
                  args.width, args);
    });
  };
}

}  // namespace eddy::cuda
