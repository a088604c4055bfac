// The chain of the unit recurrence, forward and backward: a step of the loop over time is four
// matrix products and four kernels. The host runs ahead and waits for nothing, so the loop can be captured.
//
// Products read rows and weights of T, which is RecurrenceArgs::kept: f32, or bf16 beside bf16 activations.
// Their sums are f32, and so is all that passes from step to step. Key and value come out of one product, side
// by side, and the gate of the next step separates them; backward one product reads their gradients side by
// side in dkv.
//
//   mapping        gates: a team of lanes for each head of each row, four numbers to a lane (unit_gate.cuh).
//                  Rows with a norm: a warp for each row of up to 512 entries, in registers, since a warp's
//                  instructions are for 128 entries and not for 32; a block for each longer row, of which it has
//                  1,024 in registers. Activations: a thread for each 16 bytes of T.
//   shared memory  8 numbers (32 bytes), for blocks with a row
//   bytes moved    the weights once a step, the least only if they do not stay in the second-level cache;
//                  every row that a kernel reads or writes passes through memory once, where one kernel for
//                  all steps would keep it on the multiprocessor
#include <type_traits>
#include <vector>

#include "cuda/core/map.cuh"
#include "cuda/recurrence/unit_gate.cuh"
#include "cuda/recurrence/unit_phases.h"
#include "cuda/runtime/context.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/gemm.h"
#include "tensor/tensor.h"

namespace eddy::cuda {
namespace {

// The argument of every kernel here.
struct LaunchedStep {
  UnitRecurrenceArgs args;
  float* kv;  // [batch, 2 dim]: key and value of the step before
  void* act;  // [batch, mlp] of T
  std::int64_t t;
  Dropout dropout;

  __device__ Step get() const { return {args, t, dropout}; }
};

// Threads of a block whose warps have rows or heads of their own: few, so that a step's few rows are on many
// multiprocessors.
constexpr int kWarpBlock = 64;

struct GateLaunch {
  LaunchedStep step;
  int lanes;  // of a head: HeadTeam::lanes_for
};

// Calls body(step, own, place) by a team for each head of each row; `place` is that of the head's first number in key
// and value of the step before, side by side. A team without a head has one of 0 numbers.
template <bool Whole, class Body>
__device__ void for_each_head(const GateLaunch& launched, bool reads_kv, Body&& body) {
  const Step step = launched.step.get();
  const UnitRecurrenceArgs& args = launched.step.args;
  const int lane = static_cast<int>(threadIdx.x) % 32, lanes = launched.lanes, teams = 32 / lanes,
            heads = static_cast<int>(args.heads), d = static_cast<int>(args.dim) / heads;
  const std::int64_t items = args.batch * heads;
  for (std::int64_t first = first_item() / 32 * teams; first < items; first += item_step() / 32 * teams) {
    const std::int64_t wanted = first + lane / lanes, item = min(wanted, items - 1), row = item / heads;
    const int head = static_cast<int>(item - row * heads);
    const std::int64_t place = row * 2 * args.dim + head * d;
    const HeadTeam team{lanes, lane % lanes, wanted < items ? d : 0};
    body(step,
         HeadOfRow<Whole>(args, step, team, row, head, d, reads_kv ? launched.step.kv + place : nullptr,
                          args.dim),
         place);
  }
}

template <class T, bool Whole>
__global__ void gate_kernel(const __grid_constant__ GateLaunch launched) {
  const bool reads_kv = launched.step.t > 0;
  for_each_head<Whole>(launched, reads_kv, [&](const Step& step, const HeadOfRow<Whole>& own, std::int64_t) {
    gate_of_head<T>(launched.step.args, step, own, reads_kv);
  });
}

template <class T, bool Whole>
__global__ void gate_backward_kernel(const __grid_constant__ GateLaunch launched) {
  const UnitRecurrenceArgs& args = launched.step.args;
  for_each_head<Whole>(
      launched, false, [&](const Step& step, const HeadOfRow<Whole>& own, std::int64_t place) {
        T* const dkv = step.at<T>(args.dkv, -args.batch, 2 * args.dim) + place;
        gate_backward_of_head(args, step, own, static_cast<const float*>(args.scratch) + own.place, dkv,
                              dkv + args.dim);
      });
}

// A row with a norm has a warp or a block of kThreads: thread l has the fours l, l + Threads, ...; of a row of up to
// kWarpEntries a warp keeps all in registers, of a longer one a block the first of each thread. Rows at any address
// have the bits of aligned ones: what the compiler might contract in one of the two alone is written out, with fmaf
// and __fmul_rn.
constexpr std::int64_t kWarpEntries = 512;
template <int Threads>
constexpr int kKept = Threads == 32 ? static_cast<int>(kWarpEntries) / 128 : 1;

// Calls visit(j, i) for each of a thread's fours of a row, which starts at entry i: its j-th; kKept for all that are
// not kept.
template <int Threads, class Visit>
__device__ void each_four(int dim, Visit&& visit) {
  const int first = 4 * Team<Threads>::lane();
#pragma unroll
  for (int j = 0; j < kKept<Threads>; ++j)
    if (const int i = first + 4 * Threads * j; i < dim) visit(j, i);
  if constexpr (Threads > 32) {
#pragma unroll 1
    for (int i = first + 4 * Threads * kKept<Threads>; i < dim; i += 4 * Threads) visit(kKept<Threads>, i);
  }
}
// The dropout factors of four neighbours, from an element on.
template <bool Whole>
__device__ Fours factors_of(const Step& step, const RandomKey& key, std::int64_t element) {
  Fours factors;
  if constexpr (Whole) {
    step.dropout.get(factors.at, key, element);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) factors.at[e] = step.keep(key, element + e);
  }
  return factors;
}
// Four of a parameter of rows, `otherwise` without one.
template <bool Whole>
__device__ Fours parameters_of(const void* parameter, int i, int count, float otherwise) {
  if (parameter == nullptr) return {otherwise, otherwise, otherwise, otherwise};
  return read_fours<Whole>(static_cast<const float*>(parameter) + i, count);
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

template <int Threads, bool Whole, class T>
__global__ void residual_norm_kernel(const __grid_constant__ ResidualLaunch launched) {
  using RowTeam = Team<Threads>;
  constexpr int kRest = kKept<Threads>;
  const Step step = launched.step.get();
  const int dim = static_cast<int>(step.args.dim);
  const float count = static_cast<float>(dim);
  const RandomKey key = step.dropout.on ? resolved(launched.key) : launched.key;
  for (std::int64_t row = first_item() / Threads; row < step.args.batch; row += item_step() / Threads) {
    const float* const residual = step.at(launched.residual, row, dim);
    float* const y = step.at(launched.y, row, dim);
    T* const to = step.at<T>(launched.normalised, row, dim);
    const std::int64_t first_element = (step.t * step.args.batch + row) * dim;
    // Nothing is stored before all is loaded: a store that may change what is read next would be waited for.
    Fours kept[kRest + 1], before[kRest + 1], weights[kRest + 1], biases[kRest + 1];
    const auto load_norm = [&](int j, int i) {
      weights[j] = parameters_of<Whole>(launched.weight, i, dim - i, 1);
      biases[j] = parameters_of<Whole>(launched.bias, i, dim - i, 0);
    };
    float sum = 0;
    const auto load = [&](int j, int i) {
      kept[j] = read_fours<Whole>(y + i, dim - i);
      before[j] = read_fours<Whole>(residual + i, dim - i);
    };
    each_four<Threads>(dim, [&](int j, int i) {
      if (j < kRest) load(j, i), load_norm(j, i);
    });
    each_four<Threads>(dim, [&](int j, int i) {
      if (j == kRest) load(j, i);
      const Fours factors = factors_of<Whole>(step, key, first_element + i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        kept[j].at[e] = fmaf(factors.at[e], kept[j].at[e], before[j].at[e]);
        sum += kept[j].at[e];
      }
      if (j == kRest) write_fours<Whole>(y + i, kept[j], dim - i);
    });
    const float mean = RowTeam::reduce(sum, Plus{}) / count;
    float squares = 0;  // of deviations: sum(y^2) - n mean^2 would cancel
    each_four<Threads>(dim, [&](int j, int i) {
      if (j == kRest) kept[j] = read_fours<Whole>(y + i, dim - i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float deviation = Whole || i + e < dim ? kept[j].at[e] - mean : 0.0f;
        squares = fmaf(deviation, deviation, squares);
      }
    });
    const float rstd =
        1.0f / sqrtf(RowTeam::reduce(squares, Plus{}) / count + static_cast<float>(step.args.eps));
    each_four<Threads>(dim, [&](int j, int i) {
      if (j == kRest) kept[j] = read_fours<Whole>(y + i, dim - i), load_norm(j, i);
      Fours normalised;
#pragma unroll
      for (int e = 0; e < 4; ++e)
        normalised.at[e] = fmaf(__fmul_rn(kept[j].at[e] - mean, rstd), weights[j].at[e], biases[j].at[e]);
      if (j < kRest) write_fours<Whole>(y + i, kept[j], dim - i);
      write_fours<Whole>(to + i, normalised, dim - i);
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

template <int Threads, bool Whole, class T>
__global__ void norm_gradient_kernel(const __grid_constant__ NormGradientLaunch launched) {
  using RowTeam = Team<Threads>;
  constexpr int kRest = kKept<Threads>;
  const Step step = launched.step.get();
  const int dim = static_cast<int>(step.args.dim);
  const float count = static_cast<float>(dim);
  const RandomKey key = step.dropout.on ? resolved(launched.key) : launched.key;
  for (std::int64_t row = first_item() / Threads; row < step.args.batch; row += item_step() / Threads) {
    const float *const dy = step.at(launched.dy, row, dim), *const x = step.at(launched.x, row, dim),
                       *const from = step.at(launched.from, row, dim);
    const float mean = *step.at(launched.mean, row, 1), rstd = *step.at(launched.rstd, row, 1);
    Fours g[kRest + 1], n[kRest + 1], before[kRest + 1], weights[kRest + 1];
    const auto load = [&](int j, int i) {
      g[j] = read_fours<Whole>(dy + i, dim - i);
      n[j] = read_fours<Whole>(x + i, dim - i);
      before[j] = read_fours<Whole>(from + i, dim - i);
      weights[j] = parameters_of<Whole>(launched.weight, i, dim - i, 1);
    };
    // Entries behind the end of a row have a g of 0.
    const auto normalise = [&](int j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        g[j].at[e] = __fmul_rn(g[j].at[e], weights[j].at[e]);
        n[j].at[e] = __fmul_rn(n[j].at[e] - mean, rstd);
      }
    };
    each_four<Threads>(dim, [&](int j, int i) {
      if (j < kRest) load(j, i);
    });
    float sum_g = 0, sum_gn = 0;
    each_four<Threads>(dim, [&](int j, int i) {
      if (j == kRest) load(j, i);
      normalise(j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sum_g += g[j].at[e];
        sum_gn = fmaf(g[j].at[e], n[j].at[e], sum_gn);
      }
    });
    const float mean_g = RowTeam::reduce(sum_g, Plus{}) / count,
                mean_gn = RowTeam::reduce(sum_gn, Plus{}) / count;
    const float factor = dim == 1 ? 0.0f : rstd;  // as in row_norm.cu: a row of one entry has no gradient
    float* const to = step.at(launched.to, row, dim);
    T* const dropped = step.at<T>(launched.dropped, row, dim);
    const std::int64_t first_element = (step.t * step.args.batch + row) * dim;
    each_four<Threads>(dim, [&](int j, int i) {
      if (j == kRest) load(j, i), normalise(j);
      const Fours factors = factors_of<Whole>(step, key, first_element + i);
      Fours sums;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums.at[e] = fmaf(factor, fmaf(-n[j].at[e], mean_gn, g[j].at[e] - mean_g), before[j].at[e]);
        n[j].at[e] = factors.at[e] * sums.at[e];
      }
      write_fours<Whole>(to + i, sums, dim - i);
      write_fours<Whole>(dropped + i, n[j], dim - i);
    });
  }
}

// Activations go by groups of 16 bytes of T. `whole`: the groups of all arrays are aligned and whole.
struct UnitsLaunch {
  LaunchedStep step;
  bool whole;
};
constexpr int kUnitThreads = 128;  // of a block; 256 rows of 1,536 in bf16 are 384 blocks

template <class T, int Count>
__device__ Neighbours<T, Count> read_units(const T* from, bool whole, std::int64_t count) {
  if (whole) return *reinterpret_cast<const Neighbours<T, Count>*>(from);
  Neighbours<T, Count> units;
#pragma unroll
  for (int e = 0; e < Count; ++e) units.at[e] = e < count ? from[e] : static_cast<T>(0.0f);
  return units;
}
template <class T, int Count>
__device__ void write_units(T* to, const Neighbours<float, Count>& values, bool whole, std::int64_t count) {
  const Neighbours<T, Count> units = as_stored<T>(values);
  if (whole) {
    *reinterpret_cast<Neighbours<T, Count>*>(to) = units;
  } else {
#pragma unroll
    for (int e = 0; e < Count; ++e)
      if (e < count) to[e] = units.at[e];
  }
}

// Stores u, which is in the scratch memory, and act(u).
template <class Activation, class T>
__global__ void activation_kernel(const __grid_constant__ UnitsLaunch launched) {
  constexpr int kCount = kGroup<T>;
  const Step step = launched.step.get();
  const float* const from = static_cast<const float*>(step.args.scratch);
  T *const u = step.at<T>(step.args.u, 0, step.args.mlp), *const act = static_cast<T*>(launched.step.act);
  const std::int64_t units = step.args.batch * step.args.mlp;
  for (std::int64_t i = first_item() * kCount; i < units; i += item_step() * kCount) {
    const Neighbours<float, kCount> value = read_units<float, kCount>(from + i, launched.whole, units - i);
    Neighbours<float, kCount> activated;
#pragma unroll
    for (int e = 0; e < kCount; ++e) activated.at[e] = Activation::forward(value.at[e]);
    write_units<T>(u + i, value, launched.whole, units - i);
    write_units<T>(act + i, activated, launched.whole, units - i);
  }
}

// Stores act(u), and the gradient of u from that of act(u), which is in the scratch memory.
template <class Activation, class T>
__global__ void activation_backward_kernel(const __grid_constant__ UnitsLaunch launched) {
  constexpr int kCount = kGroup<T>;
  const Step step = launched.step.get();
  const float* const dact = static_cast<const float*>(step.args.scratch);
  const T* const u = step.at<T>(static_cast<const void*>(step.args.u), 0, step.args.mlp);
  T *const act = step.at<T>(step.args.act, 0, step.args.mlp), *const du =
                                                                  step.at<T>(step.args.du, 0, step.args.mlp);
  const std::int64_t units = step.args.batch * step.args.mlp;
  for (std::int64_t i = first_item() * kCount; i < units; i += item_step() * kCount) {
    const Neighbours<T, kCount> value = read_units<T, kCount>(u + i, launched.whole, units - i);
    const Neighbours<float, kCount> gradient = read_units<float, kCount>(dact + i, launched.whole, units - i);
    Neighbours<float, kCount> activated, of_u;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const float x = static_cast<float>(value.at[e]);
      activated.at[e] = Activation::forward(x);
      of_u.at[e] = Activation::vjp(gradient.at[e], x);
    }
    write_units<T>(act + i, activated, launched.whole, units - i);
    write_units<T>(du + i, of_u, launched.whole, units - i);
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
      : step_{args, nullptr, nullptr, 0, dropout_of(args.dropout > 0, args.dropout)},
        device_{DeviceType::cuda, device_index()} {
    wo_ = weight(args.wo, args.dim * args.dim);
    up_ = weight(args.up, args.mlp * args.dim);
    down_ = weight(args.down, args.dim * args.mlp);
    wkv_ = weight(args.wkv, 2 * args.dim * args.dim);
    whole_ = args.dim / args.heads % 4 == 0;
    for (const void* const rows :
         {args.x, args.qkv, args.norm1, args.norm1_bias, args.norm2, args.norm2_bias, args.key0, args.value0})
      whole_ = whole_ && aligned(rows);
    for (const void* const rows :
         {args.h, args.o, args.r, args.a1, args.a2, args.key, args.value, args.dh, args.dx, args.do_out,
          args.dmlp_out, args.da1, args.da2, args.scratch, args.dkey, args.dvalue, args.dqkv, args.dkv})
      whole_ = whole_ && aligned(rows);
  }

  void forward() {
    const UnitRecurrenceArgs& a = args();
    const std::int64_t dim = a.dim, mlp = a.mlp;
    step_.kv = static_cast<float*>(allocate(a.batch * 2 * dim, Dtype::f32));
    step_.act = allocate(a.batch * mlp, a.kept);
    for (; step_.t < a.time; ++step_.t) {
      heads("unit_recurrence_gate", gate_kernel<T, true>, gate_kernel<T, false>);
      product(now<T>(a.o, dim), wo_, a.wo_bias, now(a.r, dim), dim, dim);
      residual_norm("unit_recurrence_norm2",
                    {step_, a.attn_key, a.x, a.r, a.norm2, a.norm2_bias, a.a2, a.mean2, a.rstd2});
      product(now<T>(a.a2, dim), up_, a.up_bias, a.scratch, dim, mlp);
      units("unit_recurrence_activation", activation_kernel<pointwise::Gelu, T>,
            activation_kernel<pointwise::Relu, T>);
      product(step_.act, down_, a.down_bias, now(a.h, dim), mlp, dim);
      residual_norm("unit_recurrence_norm1",
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
      norm_gradient("unit_recurrence_norm1_backward",
                    {step_, a.mlp_key, a.da1, a.h, a.norm1, a.mean1, a.rstd1, a.dh, a.dh, a.dmlp_out});
      product_back(now<T>(a.dmlp_out, dim), down_, a.scratch, mlp, dim);
      units("unit_recurrence_activation_backward", activation_backward_kernel<pointwise::Gelu, T>,
            activation_backward_kernel<pointwise::Relu, T>);
      product_back(now<T>(a.du, mlp), up_, now(a.da2, dim), dim, mlp);
      norm_gradient("unit_recurrence_norm2_backward",
                    {step_, a.attn_key, a.da2, a.r, a.norm2, a.mean2, a.rstd2, a.dh, a.dx, a.do_out});
      product_back(now<T>(a.do_out, dim), wo_, a.scratch, dim, dim);
      heads("unit_recurrence_gate_backward", gate_backward_kernel<T, true>, gate_backward_kernel<T, false>);
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
    if constexpr (std::is_same_v<T, float>) {
      return from;
    } else {
      void* const to = allocate(elements, args().kept);
      launch_flat_map("unit_recurrence_weight", Convert<T>{}, elements, static_cast<T*>(to),
                      static_cast<const float*>(from));
      return to;
    }
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

  // Calls run(threads of a row, whole) with constants for a kernel of rows.
  template <class Run>
  void rows(Run&& run) const {
    using Warp = std::integral_constant<int, 32>;
    using Block = std::integral_constant<int, kThreads>;
    if (args().dim <= kWarpEntries)
      whole_ ? run(Warp{}, std::true_type{}) : run(Warp{}, std::false_type{});
    else
      whole_ ? run(Block{}, std::true_type{}) : run(Block{}, std::false_type{});
  }
  template <class Args>
  void launch_rows(const char* name, void (*kernel)(Args), int threads,
                   const std::type_identity_t<Args>& launched) const {
    const int block = threads == 32 ? kWarpBlock : threads;
    launch(name, kernel, grid_for(args().batch, block / threads, 64), block, launched);
  }
  void residual_norm(const char* name, const ResidualLaunch& launched) const {
    rows([&](auto threads, auto whole) {
      launch_rows(name, residual_norm_kernel<threads, whole, T>, threads, launched);
    });
  }
  void norm_gradient(const char* name, const NormGradientLaunch& launched) const {
    rows([&](auto threads, auto whole) {
      launch_rows(name, norm_gradient_kernel<threads, whole, T>, threads, launched);
    });
  }
  void heads(const char* name, void (*whole)(GateLaunch), void (*any)(GateLaunch)) const {
    const int lanes = HeadTeam::lanes_for(args().dim / args().heads);
    launch(name, whole_ ? whole : any, grid_for(args().batch * args().heads, kWarpBlock / lanes, 64),
           kWarpBlock, {step_, lanes});
  }
  void units(const char* name, void (*gelu)(UnitsLaunch), void (*relu)(UnitsLaunch)) const {
    const std::int64_t count = args().batch * args().mlp;
    const bool whole = count % kGroup<T> == 0 && aligned(args().u) && aligned(args().act) &&
                       aligned(args().du) && aligned(args().scratch) && aligned(step_.act);
    launch(name, args().gelu ? gelu : relu, grid_for(count, kUnitThreads * kGroup<T>), kUnitThreads,
           {step_, whole});
  }

  LaunchedStep step_;
  Device device_;
  const void *wo_, *up_, *down_, *wkv_;
  bool whole_;  // rows and heads go by fours that are aligned
  std::vector<Tensor> rooms_;
};

}  // namespace

void launch_first_gate(const UnitRecurrenceArgs& args) {
  const int lanes = HeadTeam::lanes_for(args.dim / args.heads);
  launch("unit_recurrence_gate", gate_kernel<bf16, true>,
         grid_for(args.batch * args.heads, kWarpBlock / lanes, 64), kWarpBlock,
         {{args, nullptr, nullptr, 0, dropout_of(args.dropout > 0, args.dropout)}, lanes});
}

void unit_recurrence_forward(const UnitRecurrenceArgs& args) {
  require_f32("unit_recurrence", args.dtype);
  if (runs_by_phases(args)) return unit_phases_forward(args);
  for_activations("unit_recurrence", args.kept,
                  [&](auto* type) { Chain<StoredIn<decltype(type)>>(args).forward(); });
}

void unit_recurrence_backward(const UnitRecurrenceArgs& args) {
  require_f32("unit_recurrence", args.dtype);
  if (runs_by_phases(args)) return unit_phases_backward(args);
  for_activations("unit_recurrence", args.kept,
                  [&](auto* type) { Chain<StoredIn<decltype(type)>>(args).backward(); });
}

}  // namespace eddy::cuda
