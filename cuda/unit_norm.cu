// Rows brought to unit length, and the gradient.
//
// Mapping: a warp per row of up to 1024 entries, a block per longer row; each thread takes every 32nd or
// 256th entry. Shared memory: 8 numbers, for blocks. Bytes moved: the second pass over a row finds it in the
// cache, so memory sees x and y once, and in the gradient dy, x and dx once: the least.
#include "cuda/install.h"
#include "cuda/team.cuh"
#include "ops/unit_norm.h"

namespace eddy::cuda {
namespace {

template <int Threads>
__global__ void forward_kernel(UnitNormArgs args) {
  using Rows = Team<Threads>;
  const float eps = static_cast<float>(args.eps);
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const float* const x = static_cast<const float*>(args.x) + row * args.x_stride;
    float* const y = static_cast<float*>(args.y) + row * args.width;
    float squares = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) squares += x[i] * x[i];
    const float scale = 1.0f / sqrtf(Rows::reduce(squares, Plus{}) + eps);
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) y[i] = x[i] * scale;
    if (Rows::lane() == 0) static_cast<float*>(args.scale)[row] = scale;
  }
}

// dx = r (dy - n sum(dy n)) with n = x r.
template <int Threads>
__global__ void backward_kernel(UnitNormBackwardArgs args) {
  using Rows = Team<Threads>;
  for (std::int64_t row = Rows::first_row(); row < args.rows; row += Rows::row_step()) {
    const float* const dy = static_cast<const float*>(args.dy) + row * args.dy_stride;
    const float* const x = static_cast<const float*>(args.x) + row * args.x_stride;
    float* const dx = static_cast<float*>(args.dx) + row * args.width;
    const float scale = static_cast<const float*>(args.scale)[row];
    float product = 0;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) product += dy[i] * x[i];
    const float along = Rows::reduce(product, Plus{}) * scale * scale;
    for (std::int64_t i = Rows::lane(); i < args.width; i += Threads) {
      const float share = scale * (dy[i] - x[i] * along);
      dx[i] = args.beta == 0.0f ? share : args.beta * dx[i] + share;
    }
  }
}

}  // namespace

void install_unit_norm() {
  constexpr int kCuda = static_cast<int>(DeviceType::cuda);
  unit_norm_forward_slot.function[kCuda] = [](const UnitNormArgs& args) {
    require_f32("unit_norm", args.dtype);
    launch_rows("unit_norm", forward_kernel<32>, forward_kernel<kThreads>, args.rows, args.width, args);
  };
  unit_norm_backward_slot.function[kCuda] = [](const UnitNormBackwardArgs& args) {
    require_f32("unit_norm", args.dtype);
    launch_rows("unit_norm_backward", backward_kernel<32>, backward_kernel<kThreads>, args.rows, args.width,
                args);
  };
}

}  // namespace eddy::cuda
