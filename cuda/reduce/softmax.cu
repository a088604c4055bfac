// Softmax and log-softmax of rows, and their gradients.
//
//   mapping        a warp per row of up to 1024 entries, a block per longer row; each thread takes every 32nd
//                  or 256th entry
//   shared memory  8 numbers (32 bytes), for blocks
//   bytes moved    three passes over a row (maximum, sum, write); the last two find it in the cache, so
//                  memory sees one read and one write, the least, and mask and bias once where they do not
//                  repeat. The gradients read dy and y in the same way.
//
// Masked entries take no part in the arithmetic, so a NaN there does no harm.
#include "cuda/core/team.cuh"
#include "ops/reduce/softmax.h"

namespace eddy::cuda {
namespace {

// `Plain`: without mask and bias.
template <int Threads, bool Plain>
__global__ void softmax_kernel(SoftmaxArgs args) {
  using RowTeam = Team<Threads>;
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const float* const x = static_cast<const float*>(args.x) + row * args.width;
    float* const y = static_cast<float*>(args.y) + row * args.width;
    const SoftmaxSpan seen = softmax_span(args.band, row, args.width);
    const std::uint8_t* mask = nullptr;
    const float* bias = nullptr;
    if (!Plain && args.mask != nullptr) mask = args.mask + softmax_row_offset(args, args.mask_strides, row);
    if (!Plain && args.bias != nullptr)
      bias = static_cast<const float*>(args.bias) + softmax_row_offset(args, args.bias_strides, row);
    const auto shown = [=](std::int64_t i) {
      return i >= seen.begin && i < seen.end && (Plain || mask == nullptr || mask[i] != 0);
    };
    const auto score = [=](std::int64_t i) { return Plain || bias == nullptr ? x[i] : x[i] + bias[i]; };

    float top = minus_infinity();
    for (std::int64_t i = seen.begin + RowTeam::lane(); i < seen.end; i += Threads)
      if (shown(i)) top = NanMax{}(top, score(i));
    top = RowTeam::reduce(top, NanMax{});
    const bool empty = top == minus_infinity();  // every entry is masked or -inf: the row is all zeros
    const float scale = 1.0f / RowTeam::sum(seen.begin, seen.end, [=](std::int64_t i) {
                          return shown(i) && !empty ? expf(score(i) - top) : 0.0f;
                        });
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads)
      y[i] = shown(i) && !empty ? expf(score(i) - top) * scale : 0.0f;
  }
}

template <int Threads>
__global__ void softmax_backward_kernel(SoftmaxBackwardArgs args) {
  using RowTeam = Team<Threads>;
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const float* const dy = static_cast<const float*>(args.dy) + row * args.width;
    const float* const y = static_cast<const float*>(args.y) + row * args.width;
    float* const dx = static_cast<float*>(args.dx) + row * args.width;
    const SoftmaxSpan seen = softmax_span(args.band, row, args.width);
    // Selecting by y keeps an infinite dy of a masked entry out of the sum.
    const float inner = RowTeam::sum(seen.begin, seen.end,
                                     [=](std::int64_t i) { return y[i] != 0.0f ? y[i] * dy[i] : 0.0f; });
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads) {
      const bool counts = i >= seen.begin && i < seen.end && y[i] != 0.0f;
      const float share = counts ? y[i] * (dy[i] - inner) : 0.0f;
      dx[i] = args.beta == 0.0f ? share : args.beta * dx[i] + share;
    }
  }
}

template <int Threads>
__global__ void log_softmax_kernel(LogSoftmaxArgs args) {
  using RowTeam = Team<Threads>;
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const float* const x = static_cast<const float*>(args.x) + row * args.width;
    float* const y = static_cast<float*>(args.y) + row * args.width;
    float top = minus_infinity();
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads) top = NanMax{}(top, x[i]);
    top = RowTeam::reduce(top, NanMax{});
    const float log_sum = logf(RowTeam::sum(0, args.width, [=](std::int64_t i) { return expf(x[i] - top); }));
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads) y[i] = (x[i] - top) - log_sum;
  }
}

template <int Threads>
__global__ void log_softmax_backward_kernel(LogSoftmaxBackwardArgs args) {
  using RowTeam = Team<Threads>;
  for (std::int64_t row = RowTeam::first_row(); row < args.rows; row += RowTeam::row_step()) {
    const float* const dy = static_cast<const float*>(args.dy) + row * args.width;
    const float* const y = static_cast<const float*>(args.y) + row * args.width;
    float* const dx = static_cast<float*>(args.dx) + row * args.width;
    const float total = RowTeam::sum(0, args.width, [=](std::int64_t i) { return dy[i]; });
    for (std::int64_t i = RowTeam::lane(); i < args.width; i += Threads) {
      const float share = dy[i] - expf(y[i]) * total;
      dx[i] = args.beta == 0.0f ? share : args.beta * dx[i] + share;
    }
  }
}

}  // namespace

void softmax_forward(const SoftmaxArgs& args) {
  require_f32("softmax", args.dtype);
  if (args.mask == nullptr && args.bias == nullptr)
    launch_rows("softmax", softmax_kernel<32, true>, softmax_kernel<kThreads, true>, args.rows, args.width,
                args);
  else
    launch_rows("softmax", softmax_kernel<32, false>, softmax_kernel<kThreads, false>, args.rows, args.width,
                args);
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  require_f32("softmax", args.dtype);
  launch_rows("softmax_backward", softmax_backward_kernel<32>, softmax_backward_kernel<kThreads>, args.rows,
              args.width, args);
}

void log_softmax_forward(const LogSoftmaxArgs& args) {
  require_f32("log_softmax", args.dtype);
  launch_rows("log_softmax", log_softmax_kernel<32>, log_softmax_kernel<kThreads>, args.rows, args.width,
              args);
}

void log_softmax_backward(const LogSoftmaxBackwardArgs& args) {
  require_f32("log_softmax", args.dtype);
  launch_rows("log_softmax_backward", log_softmax_backward_kernel<32>, log_softmax_backward_kernel<kThreads>,
              args.rows, args.width, args);
}

}  // namespace eddy::cuda
