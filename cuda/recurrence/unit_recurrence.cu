// The chain of the unit recurrence, forward and backward: a step of the loop over time is four
// matrix products and four kernels. The host runs ahead and waits for nothing, so the loop can be captured.
//
// Products read rows and weights of T, which is RecurrenceArgs::kept: f32, or bf16 beside bf16 activations.
// Their sums are f32, and so is all that passes from step to step. Key and value come out of one product, side
// by side, and the gate of the next step separates them; backward one product reads their gradients side by
// side in dkv.
//
//   mapping        gates: a warp for each head of each row. Rows with a norm: a block for each row, since a
//                  step waits for all rows; each thread has every 256th entry, the first two in registers.
//                  Activations: a thread for each entry.
//   shared memory  8 numbers (32 bytes), for blocks
//   bytes moved    the weights once a step, the least only if they do not stay in the second-level cache;
//                  every row that a kernel reads or writes passes through memory once, where one kernel for
//                  all steps would keep it on the multiprocessor
#include <vector>

#include "cuda/core/map.cuh"
#include "cuda/recurrence/unit_recurrence.cuh"
#include "cuda/runtime/context.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/gemm.h"
#include "tensor/tensor.h"

namespace eddy::cuda {
namespace {

using RowTeam = Team<kThreads>;

// The argument of every kernel here.
struct LaunchedStep {
  UnitRecurrenceArgs args;
  float* kv;  // [batch, 2 dim]: key and value of the step before
  void* act;  // [batch, mlp] of T
  std::int64_t t;

  __device__ Step get() const { return {args, t, 0, dropout_of(args.dropout > 0, args.dropout)}; }
};

// Calls body(step, row, head, place) by a warp for each head of each row; `place` is that of the head's first
// number in key and value of the step before, side by side.
template <class Body>
__device__ void for_each_head(const LaunchedStep& launched, Body&& body) {
  const Step step = launched.get();
  const RecurrenceArgs& args = step.args;
  using Warp = Team<32>;
  for (std::int64_t item = Warp::first_row(); item < args.batch * args.heads; item += Warp::row_step()) {
    const std::int64_t row = item / args.heads, head = item % args.heads;
    body(step, row, static_cast<int>(head), row * 2 * args.dim + head * (args.dim / args.heads));
  }
}

template <class T>
__global__ void gate_kernel(LaunchedStep launched) {
  const UnitRecurrenceArgs& args = launched.args;
  for_each_head(launched, [&](const Step& step, std::int64_t row, int head, std::int64_t place) {
    gate_of_head<T>(args, step, row, head, step.t > 0 ? launched.kv + place : nullptr);
  });
}

template <class T>
__global__ void gate_backward_kernel(LaunchedStep launched) {
  const UnitRecurrenceArgs& args = launched.args;
  for_each_head(launched, [&](const Step& step, std::int64_t row, int head, std::int64_t place) {
    T* const dkv = step.at<T>(args.dkv, -args.batch, 2 * args.dim) + place;
    gate_backward_of_head(args, step, row, head, dkv, dkv + args.dim);
  });
}

// How many entries of its row a thread keeps in registers: of rows of up to 512, all.
constexpr int kKept = 2;

// Calls visit(j, i) for each entry i of a row that this thread has, its j-th; kKept for all that are not kept.
template <class Visit>
__device__ void each_entry(std::int64_t dim, Visit&& visit) {
#pragma unroll
  for (int j = 0; j < kKept; ++j)
    if (const std::int64_t i = RowTeam::lane() + j * kThreads; i < dim) visit(j, i);
#pragma unroll 1
  for (std::int64_t i = RowTeam::lane() + kKept * kThreads; i < dim; i += kThreads) visit(kKept, i);
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

template <class T>
__global__ void residual_norm_kernel(ResidualLaunch launched) {
  const Step step = launched.step.get();
  const std::int64_t dim = step.args.dim;
  const float *const weight = static_cast<const float*>(launched.weight), *const bias =
                                                                              static_cast<const float*>(
                                                                                  launched.bias);
  const float count = static_cast<float>(dim);
  for (std::int64_t row = RowTeam::first_row(); row < step.args.batch; row += RowTeam::row_step()) {
    const float* const residual = step.at(launched.residual, row, dim);
    float* const y = step.at(launched.y, row, dim);
    T* const to = step.at<T>(launched.normalised, row, dim);
    const std::int64_t first_element = (step.t * step.args.batch + row) * dim;
    // Nothing is stored before all is loaded: a store that may change what is read next would be waited for.
    float kept[kKept + 1], weights[kKept + 1], biases[kKept + 1], sum = 0;
    const auto load_norm = [&](int j, std::int64_t i) {
      weights[j] = weight != nullptr ? weight[i] : 1.0f;
      biases[j] = bias != nullptr ? bias[i] : 0.0f;
    };
    each_entry(dim, [&](int j, std::int64_t i) {
      kept[j] = residual[i] + step.keep(launched.key, first_element + i) * y[i];
      sum += kept[j];
      if (j < kKept)
        load_norm(j, i);
      else
        y[i] = kept[j];
    });
    const float mean = RowTeam::reduce(sum, Plus{}) / count;
    float squares = 0;  // of deviations: sum(y^2) - n mean^2 would cancel
    each_entry(dim, [&](int j, std::int64_t i) {
      const float deviation = (j < kKept ? kept[j] : y[i]) - mean;
      squares += deviation * deviation;
    });
    const float rstd =
        1.0f / sqrtf(RowTeam::reduce(squares, Plus{}) / count + static_cast<float>(step.args.eps));
    each_entry(dim, [&](int j, std::int64_t i) {
      if (j == kKept) kept[j] = y[i], load_norm(j, i);
      y[i] = kept[j];
      to[i] = static_cast<T>((kept[j] - mean) * rstd * weights[j] + biases[j]);
    });
    if (RowTeam::lane() == 0) {
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

template <class T>
__global__ void norm_gradient_kernel(NormGradientLaunch launched) {
  const Step step = launched.step.get();
  const std::int64_t dim = step.args.dim;
  const float* const weight = static_cast<const float*>(launched.weight);
  const float count = static_cast<float>(dim);
  for (std::int64_t row = RowTeam::first_row(); row < step.args.batch; row += RowTeam::row_step()) {
    const float *const dy = step.at(launched.dy, row, dim), *const x = step.at(launched.x, row, dim),
                       *const from = step.at(launched.from, row, dim);
    const float mean = *step.at(launched.mean, row, 1), rstd = *step.at(launched.rstd, row, 1);
    const auto gradient = [&](std::int64_t i) { return weight != nullptr ? dy[i] * weight[i] : dy[i]; };
    const auto normal = [&](std::int64_t i) { return (x[i] - mean) * rstd; };
    float g[kKept + 1], n[kKept + 1], before[kKept + 1], sum_g = 0, sum_gn = 0;
    each_entry(dim, [&](int j, std::int64_t i) {
      g[j] = gradient(i);
      n[j] = normal(i);
      before[j] = from[i];
      sum_g += g[j];
      sum_gn += g[j] * n[j];
    });
    const float mean_g = RowTeam::reduce(sum_g, Plus{}) / count,
                mean_gn = RowTeam::reduce(sum_gn, Plus{}) / count;
    const float factor = dim == 1 ? 0.0f : rstd;  // as in layer_norm.cu: a row of one entry has no gradient
    float* const to = step.at(launched.to, row, dim);
    T* const dropped = step.at<T>(launched.dropped, row, dim);
    const std::int64_t first_element = (step.t * step.args.batch + row) * dim;
    each_entry(dim, [&](int j, std::int64_t i) {
      if (j == kKept) g[j] = gradient(i), n[j] = normal(i), before[j] = from[i];
      const float sum = before[j] + factor * (g[j] - mean_g - n[j] * mean_gn);
      to[i] = sum;
      dropped[i] = static_cast<T>(step.keep(launched.key, first_element + i) * sum);
    });
  }
}

// Stores u, which is in the scratch memory, and act(u).
template <class Activation, class T>
__global__ void activation_kernel(LaunchedStep launched) {
  const Step step = launched.get();
  T *const u = step.at<T>(step.args.u, 0, step.args.mlp), *const act = static_cast<T*>(launched.act);
  for (std::int64_t i = first_item(); i < step.args.batch * step.args.mlp; i += item_step()) {
    const float value = static_cast<const float*>(step.args.scratch)[i];
    u[i] = static_cast<T>(value);
    act[i] = static_cast<T>(Activation::forward(value));
  }
}

// Stores act(u), and the gradient of u from that of act(u), which is in the scratch memory.
template <class Activation, class T>
__global__ void activation_backward_kernel(LaunchedStep launched) {
  const Step step = launched.get();
  const T* const u = step.at<T>(static_cast<const void*>(step.args.u), 0, step.args.mlp);
  T *const act = step.at<T>(step.args.act, 0, step.args.mlp), *const du =
                                                                  step.at<T>(step.args.du, 0, step.args.mlp);
  for (std::int64_t i = first_item(); i < step.args.batch * step.args.mlp; i += item_step()) {
    const float value = static_cast<float>(u[i]);
    act[i] = static_cast<T>(Activation::forward(value));
    du[i] = static_cast<T>(Activation::vjp(static_cast<const float*>(step.args.scratch)[i], value));
  }
}

// ---- host

template <class To>
struct Convert {
  __device__ To operator()(float x) const { return static_cast<To>(x); }
};

// The launches of one step.
template <class T>
class Chain {
 public:
  explicit Chain(const UnitRecurrenceArgs& args)
      : step_{args, nullptr, nullptr, 0}, device_{DeviceType::cuda, device_index()} {
    wo_ = weight(args.wo, args.dim * args.dim);
    up_ = weight(args.up, args.mlp * args.dim);
    down_ = weight(args.down, args.dim * args.mlp);
    wkv_ = weight(args.wkv, 2 * args.dim * args.dim);
  }

  void forward() {
    const UnitRecurrenceArgs& a = args();
    const std::int64_t dim = a.dim, mlp = a.mlp;
    step_.kv = static_cast<float*>(allocate(a.batch * 2 * dim, Dtype::f32));
    step_.act = allocate(a.batch * mlp, a.kept);
    for (; step_.t < a.time; ++step_.t) {
      heads("unit_recurrence_gate", gate_kernel<T>);
      product(now<T>(a.o, dim), wo_, a.wo_bias, now(a.r, dim), dim, dim);
      rows("unit_recurrence_norm2", residual_norm_kernel<T>,
           {step_, a.attn_key, a.x, a.r, a.norm2, a.norm2_bias, a.a2, a.mean2, a.rstd2});
      product(now<T>(a.a2, dim), up_, a.up_bias, a.scratch, dim, mlp);
      units("unit_recurrence_activation", activation_kernel<pointwise::Gelu, T>,
            activation_kernel<pointwise::Relu, T>);
      product(step_.act, down_, a.down_bias, now(a.h, dim), mlp, dim);
      rows("unit_recurrence_norm1", residual_norm_kernel<T>,
           {step_, a.mlp_key, a.r, a.h, a.norm1, a.norm1_bias, a.a1, a.mean1, a.rstd1});
      product(now<T>(a.a1, dim), wkv_, a.wkv_bias, step_.kv, dim, 2 * dim);
    }
    --step_.t;
    copy_side(now(a.key, dim), dim, step_.kv, 2 * dim);
    copy_side(now(a.value, dim), dim, step_.kv + dim, 2 * dim);
  }

  void backward() {
    const UnitRecurrenceArgs& a = args();
    const std::int64_t dim = a.dim, mlp = a.mlp;
    step_.t = a.time - 1;
    copy_side(now<T>(a.dkv, 2 * dim), 2 * dim, now(a.dkey, dim), dim);
    copy_side(now<T>(a.dkv, 2 * dim) + dim, 2 * dim, now(a.dvalue, dim), dim);
    for (; step_.t >= 0; --step_.t) {
      product_back(now<T>(a.dkv, 2 * dim), wkv_, now(a.da1, dim), dim, 2 * dim);
      rows("unit_recurrence_norm1_backward", norm_gradient_kernel<T>,
           {step_, a.mlp_key, a.da1, a.h, a.norm1, a.mean1, a.rstd1, a.dh, a.dh, a.dmlp_out});
      product_back(now<T>(a.dmlp_out, dim), down_, a.scratch, mlp, dim);
      units("unit_recurrence_activation_backward", activation_backward_kernel<pointwise::Gelu, T>,
            activation_backward_kernel<pointwise::Relu, T>);
      product_back(now<T>(a.du, mlp), up_, now(a.da2, dim), dim, mlp);
      rows("unit_recurrence_norm2_backward", norm_gradient_kernel<T>,
           {step_, a.attn_key, a.da2, a.r, a.norm2, a.mean2, a.rstd2, a.dh, a.dx, a.do_out});
      product_back(now<T>(a.do_out, dim), wo_, a.scratch, dim, dim);
      heads("unit_recurrence_gate_backward", gate_backward_kernel<T>);
    }
  }

 private:
  const UnitRecurrenceArgs& args() const { return step_.args; }
  // Returns this step of an array [time, batch, width].
  template <class Stored = float>
  Stored* now(void* base, std::int64_t width) const {
    return static_cast<Stored*>(base) + step_.t * args().batch * width;
  }
  // Returns memory that lasts as long as this object.
  void* allocate(std::int64_t elements, Dtype dtype) {
    rooms_.push_back(Tensor::empty({elements}, dtype, device_));
    return rooms_.back().raw_data();
  }
  // Returns a weight as products read it.
  const void* weight(const void* from, std::int64_t elements) {
    if (args().kept == Dtype::f32) return from;
    void* const to = allocate(elements, args().kept);
    launch_flat_map("unit_recurrence_weight", Convert<T>{}, elements, static_cast<T*>(to),
                    static_cast<const float*>(from));
    return to;
  }
  // Copies rows of dim numbers that are so many numbers apart.
  template <class To>
  void copy_side(To* to, std::int64_t to_stride, const float* from, std::int64_t from_stride) const {
    WalkShape<2> shape;
    shape.add_axis(args().batch, {to_stride, from_stride});
    shape.add_axis(args().dim, {1, 1});
    launch_map("unit_recurrence_side", Convert<To>{}, shape, to, from);
  }

  // By its slot, so that whoever records products sees those of the chain too (ops/cost/recorded_calls.h).
  static void multiply(const GemmArgs& g) { gemm_slot({DeviceType::cuda, device_index()}, g); }
  // y [batch, out] = x [batch, in] w^T + bias, for a weight w [out, in].
  void product(const void* x, const void* w, const void* bias, void* y, std::int64_t in,
               std::int64_t out) const {
    GemmArgs g{args().kept, false, true, args().batch, out, in, x, in, w, in, y, out};
    g.precision = args().precision;
    g.c_f32 = args().kept == Dtype::bf16;
    g.bias = bias;
    multiply(g);
  }
  // dx [batch, in] = dy [batch, out] w.
  void product_back(const void* dy, const void* w, void* dx, std::int64_t in, std::int64_t out) const {
    GemmArgs g{args().kept, false, false, args().batch, in, out, dy, out, w, in, dx, in};
    g.precision = args().precision;
    g.c_f32 = args().kept == Dtype::bf16;
    multiply(g);
  }

  template <class Args>
  void rows(const char* name, void (*kernel)(Args), const std::type_identity_t<Args>& launched) const {
    launch(name, kernel, grid_for(args().batch, 1, 64), kThreads, launched);
  }
  void heads(const char* name, void (*kernel)(LaunchedStep)) const {
    launch(name, kernel, grid_for(args().batch * args().heads, Team<32>::kRowsPerBlock, 64), kThreads, step_);
  }
  void units(const char* name, void (*gelu)(LaunchedStep), void (*relu)(LaunchedStep)) const {
    launch(name, args().gelu ? gelu : relu, grid_for(args().batch * args().mlp, kThreads), kThreads, step_);
  }

  LaunchedStep step_;
  Device device_;
  const void *wo_, *up_, *down_, *wkv_;
  std::vector<Tensor> rooms_;
};

}  // namespace

void unit_recurrence_forward(const UnitRecurrenceArgs& args) {
  require_f32("unit_recurrence", args.dtype);
  for_activations("unit_recurrence", args.kept,
                  [&](auto* type) { Chain<StoredIn<decltype(type)>>(args).forward(); });
}

void unit_recurrence_backward(const UnitRecurrenceArgs& args) {
  require_f32("unit_recurrence", args.dtype);
  for_activations("unit_recurrence", args.kept,
                  [&](auto* type) { Chain<StoredIn<decltype(type)>>(args).backward(); });
}

}  // namespace eddy::cuda
