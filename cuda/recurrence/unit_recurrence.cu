// The chain of the unit recurrence without fusing, forward and backward: a step of the loop over time is five
// matrix products and four kernels between them. The host runs ahead and waits for nothing, so the loop can
// be captured.
//
//   mapping        gates: a warp for each head of each row. Rows with a norm: a warp for each row of up to
//                  256 entries, else a block; each thread has every 32nd or 256th entry. Activations: a
//                  thread for each entry.
//   shared memory  8 numbers (32 bytes), for blocks
//   bytes moved    the weights once a step, the least only if they do not stay in the second-level cache;
//                  every row that a kernel reads or writes passes through memory once, where one kernel for
//                  all steps would keep it on the multiprocessor
#include "cuda/recurrence/unit_recurrence.cuh"
#include "cuda/recurrence/unit_recurrence_fused.h"
#include "cuda/runtime/gemm.h"
#include "ops/pointwise/pointwise_functors.h"

namespace eddy::cuda {
namespace {

// The argument of every kernel here.
struct LaunchedStep {
  UnitRecurrenceArgs args;
  std::int64_t t;

  __device__ Step get() const { return {args, t, 0, dropout_of(args.dropout > 0, args.dropout)}; }
};

__global__ void gate_kernel(LaunchedStep launched) {
  const Step step = launched.get();
  using Warp = Team<32>;
  for (std::int64_t item = Warp::first_row(); item < step.args.batch * step.args.heads;
       item += Warp::row_step())
    gate_of_head<float>(launched.args, step, item / step.args.heads,
                        static_cast<int>(item % step.args.heads));
}

__global__ void gate_backward_kernel(LaunchedStep launched) {
  const Step step = launched.get();
  using Warp = Team<32>;
  for (std::int64_t item = Warp::first_row(); item < step.args.batch * step.args.heads;
       item += Warp::row_step())
    gate_backward_of_head(launched.args, step, item / step.args.heads,
                          static_cast<int>(item % step.args.heads));
}

// The end of a half of the layer: y, which holds a product, becomes residual + drop(y), and `normalised` its
// norm. Rows are those of this step.
struct ResidualLaunch {
  LaunchedStep step;
  RandomKey key;
  const void* residual;
  void* y;
  const void *weight, *bias;  // of the norm; may be null
  void *normalised, *mean, *rstd;
};

template <int Threads>
__global__ void residual_norm_kernel(ResidualLaunch launched) {
  using Rows = Team<Threads>;
  const Step step = launched.step.get();
  const std::int64_t dim = step.args.dim;
  const float *const weight = static_cast<const float*>(launched.weight), *const bias =
                                                                              static_cast<const float*>(
                                                                                  launched.bias);
  const float count = static_cast<float>(dim);
  for (std::int64_t row = Rows::first_row(); row < step.args.batch; row += Rows::row_step()) {
    const float* const residual = step.at(launched.residual, row, dim);
    float *const y = step.at(launched.y, row, dim), *const to = step.at(launched.normalised, row, dim);
    const std::int64_t first_element = (step.t * step.args.batch + row) * dim;
    float sum = 0;
    for (std::int64_t i = Rows::lane(); i < dim; i += Threads) {
      y[i] = residual[i] + step.keep(launched.key, first_element + i) * y[i];
      sum += y[i];
    }
    const float mean = Rows::reduce(sum, Plus{}) / count;
    float squares = 0;  // of deviations: sum(y^2) - n mean^2 would cancel
    for (std::int64_t i = Rows::lane(); i < dim; i += Threads) squares += (y[i] - mean) * (y[i] - mean);
    const float rstd =
        1.0f / sqrtf(Rows::reduce(squares, Plus{}) / count + static_cast<float>(step.args.eps));
    for (std::int64_t i = Rows::lane(); i < dim; i += Threads) {
      const float n = (y[i] - mean) * rstd;
      to[i] = (weight != nullptr ? n * weight[i] : n) + (bias != nullptr ? bias[i] : 0.0f);
    }
    if (Rows::lane() == 0) {
      *step.at(launched.mean, row, 1) = mean;
      *step.at(launched.rstd, row, 1) = rstd;
    }
  }
}

// Its gradient. The gradient of the norm's weight is summed after the loop.
//
//   to      = from + the norm's gradient of dy
//   dropped = drop(to)
//
// `from` may be `to`.
struct NormGradientLaunch {
  LaunchedStep step;
  RandomKey key;
  const void *dy, *x, *weight, *mean, *rstd;
  const void* from;
  void *to, *dropped;
};

template <int Threads>
__global__ void norm_gradient_kernel(NormGradientLaunch launched) {
  using Rows = Team<Threads>;
  const Step step = launched.step.get();
  const std::int64_t dim = step.args.dim;
  const float* const weight = static_cast<const float*>(launched.weight);
  const float count = static_cast<float>(dim);
  for (std::int64_t row = Rows::first_row(); row < step.args.batch; row += Rows::row_step()) {
    const float *const dy = step.at(launched.dy, row, dim), *const x = step.at(launched.x, row, dim);
    const float mean = *step.at(launched.mean, row, 1), rstd = *step.at(launched.rstd, row, 1);
    float sum_g = 0, sum_gn = 0;
    for (std::int64_t i = Rows::lane(); i < dim; i += Threads) {
      const float g = weight != nullptr ? dy[i] * weight[i] : dy[i];
      sum_g += g;
      sum_gn += g * ((x[i] - mean) * rstd);
    }
    const float mean_g = Rows::reduce(sum_g, Plus{}) / count, mean_gn = Rows::reduce(sum_gn, Plus{}) / count;
    const float factor = dim == 1 ? 0.0f : rstd;  // as in layer_norm.cu: a row of one entry has no gradient
    const float* const from = step.at(launched.from, row, dim);
    float *const to = step.at(launched.to, row, dim), *const dropped = step.at(launched.dropped, row, dim);
    const std::int64_t first_element = (step.t * step.args.batch + row) * dim;
    for (std::int64_t i = Rows::lane(); i < dim; i += Threads) {
      const float g = weight != nullptr ? dy[i] * weight[i] : dy[i];
      const float sum = from[i] + factor * (g - mean_g - (x[i] - mean) * rstd * mean_gn);
      to[i] = sum;
      dropped[i] = step.keep(launched.key, first_element + i) * sum;
    }
  }
}

// scratch = act(u).
template <class Activation>
__global__ void activation_kernel(LaunchedStep launched) {
  const Step step = launched.get();
  const float* const u = step.at(static_cast<const void*>(step.args.u), 0, step.args.mlp);
  for (std::int64_t i = first_item(); i < step.args.batch * step.args.mlp; i += item_step())
    static_cast<float*>(step.args.scratch)[i] = Activation::forward(u[i]);
}

// act = act(u), and du becomes the gradient of u from that of act(u).
template <class Activation>
__global__ void activation_backward_kernel(LaunchedStep launched) {
  const Step step = launched.get();
  const float* const u = step.at(static_cast<const void*>(step.args.u), 0, step.args.mlp);
  float *const act = step.at(step.args.act, 0, step.args.mlp), *const du =
                                                                   step.at(step.args.du, 0, step.args.mlp);
  for (std::int64_t i = first_item(); i < step.args.batch * step.args.mlp; i += item_step()) {
    act[i] = Activation::forward(u[i]);
    du[i] = Activation::vjp(du[i], u[i]);
  }
}

// ---- host

// The launches of one step.
struct Chain {
  LaunchedStep step;

  explicit Chain(const UnitRecurrenceArgs& args) : step{args, 0} {}

  const UnitRecurrenceArgs& args() const { return step.args; }
  // Returns this step of an array [time, batch, width].
  void* now(const void* base, std::int64_t width) const {
    return const_cast<float*>(static_cast<const float*>(base)) + step.t * args().batch * width;
  }
  const void* entries(const void* base, std::int64_t first) const {
    return base == nullptr ? nullptr : static_cast<const float*>(base) + first;
  }

  // y [batch, out] = x [batch, in] w^T + bias, for a weight w [out, in].
  void product(const void* x, const void* w, const void* bias, void* y, std::int64_t in,
               std::int64_t out) const {
    GemmArgs g{Dtype::f32, false, true, args().batch, out, in, x, in, w, in, y, out};
    g.bias = bias;
    gemm(g);
  }
  // dx [batch, in] = beta dx + dy [batch, out] w.
  void product_back(const void* dy, const void* w, void* dx, std::int64_t in, std::int64_t out,
                    double beta = 0) const {
    GemmArgs g{Dtype::f32, false, false, args().batch, in, out, dy, out, w, in, dx, in};
    g.beta = beta;
    gemm(g);
  }

  // Each step waits for all rows, so a block pays off for shorter rows than elsewhere.
  template <class Args>
  void rows(const char* name, void (*warp_kernel)(Args), void (*block_kernel)(Args),
            const Args& launched) const {
    if (args().dim <= 256)
      launch(name, warp_kernel, grid_for(args().batch, Team<32>::kRowsPerBlock, 64), kThreads, launched);
    else
      launch(name, block_kernel, grid_for(args().batch, 1, 64), kThreads, launched);
  }
  void heads(const char* name, void (*kernel)(LaunchedStep)) const {
    launch(name, kernel, grid_for(args().batch * args().heads, Team<32>::kRowsPerBlock, 64), kThreads, step);
  }
  void units(const char* name, void (*gelu)(LaunchedStep), void (*relu)(LaunchedStep)) const {
    launch(name, args().gelu ? gelu : relu, grid_for(args().batch * args().mlp, kThreads), kThreads, step);
  }
  void residual_norm(const char* name, const ResidualLaunch& launched) const {
    rows(name, residual_norm_kernel<32>, residual_norm_kernel<kThreads>, launched);
  }
  void norm_gradient(const char* name, const NormGradientLaunch& launched) const {
    rows(name, norm_gradient_kernel<32>, norm_gradient_kernel<kThreads>, launched);
  }

  void forward() const {
    const UnitRecurrenceArgs& a = args();
    const std::int64_t dim = a.dim, mlp = a.mlp;
    heads("unit_recurrence_gate", gate_kernel);
    product(now(a.o, dim), a.wo, a.wo_bias, now(a.r, dim), dim, dim);
    residual_norm("unit_recurrence_norm2",
                  {step, a.attn_key, a.x, a.r, a.norm2, a.norm2_bias, a.a2, a.mean2, a.rstd2});
    product(now(a.a2, dim), a.up, a.up_bias, now(a.u, mlp), dim, mlp);
    units("unit_recurrence_activation", activation_kernel<pointwise::Gelu>,
          activation_kernel<pointwise::Relu>);
    product(a.scratch, a.down, a.down_bias, now(a.h, dim), mlp, dim);
    residual_norm("unit_recurrence_norm1",
                  {step, a.mlp_key, a.r, a.h, a.norm1, a.norm1_bias, a.a1, a.mean1, a.rstd1});
    product(now(a.a1, dim), a.wkv, a.wkv_bias, now(a.key, dim), dim, dim);
    product(now(a.a1, dim), entries(a.wkv, dim * dim), entries(a.wkv_bias, dim), now(a.value, dim), dim, dim);
  }

  void backward() const {
    const UnitRecurrenceArgs& a = args();
    const std::int64_t dim = a.dim, mlp = a.mlp;
    product_back(now(a.dkey, dim), a.wkv, now(a.da1, dim), dim, dim);
    product_back(now(a.dvalue, dim), entries(a.wkv, dim * dim), now(a.da1, dim), dim, dim, 1);
    norm_gradient("unit_recurrence_norm1_backward",
                  {step, a.mlp_key, a.da1, a.h, a.norm1, a.mean1, a.rstd1, a.dh, a.dh, a.dmlp_out});
    product_back(now(a.dmlp_out, dim), a.down, now(a.du, mlp), mlp, dim);
    units("unit_recurrence_activation_backward", activation_backward_kernel<pointwise::Gelu>,
          activation_backward_kernel<pointwise::Relu>);
    product_back(now(a.du, mlp), a.up, now(a.da2, dim), dim, mlp);
    norm_gradient("unit_recurrence_norm2_backward",
                  {step, a.attn_key, a.da2, a.r, a.norm2, a.mean2, a.rstd2, a.dh, a.dx, a.do_out});
    product_back(now(a.do_out, dim), a.wo, a.scratch, dim, dim);
    heads("unit_recurrence_gate_backward", gate_backward_kernel);
  }
};

}  // namespace

void unit_recurrence_forward(const UnitRecurrenceArgs& args) {
  require_f32("unit_recurrence", args.dtype);
  if (fused_unit_recurrence_forward(args)) return;
  require_f32("unit_recurrence", args.kept);
  for (Chain chain(args); chain.step.t < args.time; ++chain.step.t) chain.forward();
}

void unit_recurrence_backward(const UnitRecurrenceArgs& args) {
  require_f32("unit_recurrence", args.dtype);
  if (fused_unit_recurrence_backward(args)) return;
  require_f32("unit_recurrence", args.kept);
  Chain chain(args);
  for (chain.step.t = args.time - 1; chain.step.t >= 0; --chain.step.t) chain.backward();
}

}  // namespace eddy::cuda
