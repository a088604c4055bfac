// The chain of the unit recurrence by a launch for each phase, for products in bf16; the kernels, their mapping and
// what they move are in unit_phases.cuh. A step of the loop over time:
//
//   forward    {Wo, dropout, residual}  {norm2, Wup, activation}  {Wdown, dropout, residual}
//              {norm1, Wkv, the gate of the next step}
//   backward   {Wkv}  {norm1's gradient, Wdown, the activation's gradient}  {Wup}
//              {norm2's gradient, Wo, the gate's gradient}
//
// All of them are dependent launches (dependent_launch.cuh): weights, biases and a norm's parameters are read while the
// launch ahead still runs. What makes these has ended by then, since a plain launch stands between: the first gate
// forward, the gradients of the last key and value backward. So no more than the launch ahead is unfinished when one
// begins, since each lets the next one begin behind its own wait.
//
// It is a form beside the composed chain, which no GPU has timed.
#include <vector>

#include "cuda/core/map.cuh"
#include "cuda/recurrence/unit_phases.cuh"
#include "cuda/recurrence/unit_phases.h"
#include "cuda/runtime/context.h"
#include "tensor/tensor.h"

namespace eddy::cuda {
namespace {

// Of weights, of rows, and of the last step's gradients of key and value.
struct ToProducts {
  __device__ bf16 operator()(float x) const { return static_cast<bf16>(x); }
};

class PhaseChain {
 public:
  explicit PhaseChain(const UnitRecurrenceArgs& args)
      : device_{DeviceType::cuda, device_index()},
        launched_{args, dropout_of(args.dropout > 0, args.dropout)},
        dim_(static_cast<int>(args.dim)),
        mlp_(static_cast<int>(args.mlp)) {
    head_width_ = static_cast<int>(64 / (args.dim / args.heads) * (args.dim / args.heads));
  }

  void forward() {
    UnitRecurrenceArgs& a = launched_.args;
    const bf16 *const wo = weight(a.wo, dim_, dim_, false), *const up = weight(a.up, mlp_, dim_, false),
                      *const down = weight(a.down, dim_, mlp_, false),
                      *const wkv = weight(a.wkv, 2 * dim_, dim_, false);
    a.act = allocate(a.batch * a.mlp, Dtype::bf16);
    launch_first_gate(a);
    for (std::int64_t& t = launched_.t; t < a.time; ++t) {
      PhaseLaunch out = phase(wo, a.wo_bias, dim_, dim_, a.attn_key);
      out.copied = now<bf16>(a.o, dim_);
      out.residual = now<float>(a.x, dim_);
      out.y = now<float>(a.r, dim_);
      run<Prologue::copy, Epilogue::residual>("unit_recurrence_out", out, 32);

      PhaseLaunch wide = phase(up, a.up_bias, dim_, mlp_, a.mlp_key);
      norm(wide, a.r, a.norm2, a.norm2_bias, a.mean2, a.rstd2, a.a2);
      run<Prologue::norm, Epilogue::activation>("unit_recurrence_up", wide, 128);

      PhaseLaunch narrow = phase(down, a.down_bias, mlp_, dim_, a.mlp_key);
      narrow.copied = static_cast<const bf16*>(a.act);
      narrow.residual = now<float>(a.r, dim_);
      narrow.y = now<float>(a.h, dim_);
      run<Prologue::copy, Epilogue::residual>("unit_recurrence_down", narrow, 32);

      PhaseLaunch state = phase(wkv, a.wkv_bias, dim_, 2 * dim_, a.gate_key);
      norm(state, a.h, a.norm1, a.norm1_bias, a.mean1, a.rstd1, a.a1);
      run<Prologue::norm, Epilogue::key_value_gate>("unit_recurrence_state", state, head_width_);
    }
  }

  void backward() {
    const UnitRecurrenceArgs& a = launched_.args;
    const bf16 *const wo = weight(a.wo, dim_, dim_, true), *const up = weight(a.up, mlp_, dim_, true),
                      *const down = weight(a.down, dim_, mlp_, true),
                      *const wkv = weight(a.wkv, 2 * dim_, dim_, true);
    // The gradient of r without norm2's. All blocks of a row read dh, so none may write it there.
    float* const dr = static_cast<float*>(allocate(a.batch * a.dim, Dtype::f32));
    launched_.t = a.time - 1;
    last_side(0, a.dkey);
    last_side(dim_, a.dvalue);
    for (std::int64_t& t = launched_.t; t >= 0; --t) {
      PhaseLaunch state = phase(wkv, nullptr, 2 * dim_, dim_, a.gate_key);
      state.copied = now<bf16>(a.dkv, 2 * dim_);
      state.y = now<float>(a.da1, dim_);
      run<Prologue::copy, Epilogue::plain>("unit_recurrence_state_backward", state, 32);

      PhaseLaunch narrow = phase(down, nullptr, dim_, mlp_, a.mlp_key);
      norm_gradient(narrow, a.da1, a.h, a.norm1, a.mean1, a.rstd1, now<float>(a.dh, dim_), dr, a.dmlp_out);
      run<Prologue::norm_gradient, Epilogue::activation_gradient>("unit_recurrence_down_backward", narrow,
                                                                  128);

      PhaseLaunch wide = phase(up, nullptr, mlp_, dim_, a.mlp_key);
      wide.copied = now<bf16>(a.du, mlp_);
      wide.y = now<float>(a.da2, dim_);
      run<Prologue::copy, Epilogue::plain>("unit_recurrence_up_backward", wide, 32);

      PhaseLaunch out = phase(wo, nullptr, dim_, dim_, a.attn_key);
      norm_gradient(out, a.da2, a.r, a.norm2, a.mean2, a.rstd2, dr, now<float>(a.dx, dim_), a.do_out);
      run<Prologue::norm_gradient, Epilogue::gate_gradient>("unit_recurrence_out_backward", out, head_width_);
    }
  }

 private:
  template <class Stored>
  Stored* now(const void* base, std::int64_t width) const {
    return static_cast<Stored*>(const_cast<void*>(base)) + launched_.t * launched_.args.batch * width;
  }
  void* allocate(std::int64_t elements, Dtype dtype) {
    rooms_.push_back(Tensor::empty({elements}, dtype, device_));
    return rooms_.back().raw_data();
  }
  // Returns a weight [out, in] as bf16, or its transpose.
  const bf16* weight(const void* from, std::int64_t out, std::int64_t in, bool transposed) {
    bf16* const to = static_cast<bf16*>(allocate(out * in, Dtype::bf16));
    WalkShape<2> shape;
    shape.add_axis(transposed ? in : out, {transposed ? out : in, transposed ? 1 : in});
    shape.add_axis(transposed ? out : in, {1, transposed ? in : 1});
    launch_map("unit_recurrence_weight", ToProducts{}, shape, to, static_cast<const float*>(from));
    return to;
  }
  // Copies the gradient of the last step's key or value to its side of dkv.
  void last_side(std::int64_t column, const void* from) {
    WalkShape<2> shape;
    shape.add_axis(launched_.args.batch, {2 * dim_, dim_});
    shape.add_axis(dim_, {1, 1});
    launch_map("unit_recurrence_side", ToProducts{}, shape, now<bf16>(launched_.args.dkv, 2 * dim_) + column,
               now<const float>(from, dim_));
  }

  PhaseLaunch phase(const bf16* w, const void* bias, int depth, int columns, const RandomKey& key) const {
    PhaseLaunch launch = launched_;
    launch.weight = w;
    launch.bias = static_cast<const float*>(bias);
    launch.depth = depth;
    launch.columns = columns;
    launch.key = key;
    return launch;
  }
  void norm(PhaseLaunch& to, const void* x, const void* gain, const void* shift, void* mean, void* rstd,
            void* made) const {
    to.x = now<float>(x, dim_);
    to.gain = static_cast<const float*>(gain);
    to.shift = static_cast<const float*>(shift);
    to.mean = now<float>(mean, 1);
    to.rstd = now<float>(rstd, 1);
    to.made = now<bf16>(made, dim_);
  }
  void norm_gradient(PhaseLaunch& to, const void* dy, const void* x, const void* gain, void* mean, void* rstd,
                     const float* before, float* sum, void* made) const {
    norm(to, x, gain, nullptr, mean, rstd, made);
    to.dy = now<float>(dy, dim_);
    to.before = before;
    to.to = sum;
  }
  template <Prologue P, Epilogue E>
  void run(const char* name, PhaseLaunch launched, int width) const {
    using Own = Phase<P, E>;
    launched.width = width;
    launched.chunk_shift = Own::chunk_shift(launched.depth);
    const std::int64_t down = (launched.args.batch + Own::kRows - 1) / Own::kRows,
                       across = (launched.columns / Own::kHalves + width - 1) / width;
    launch_dependent(name, phase_kernel<P, E>, down * across, kPhaseThreads, launched,
                     Own::shared_bytes(launched.depth, launched.chunk_shift));
  }

  Device device_;
  PhaseLaunch launched_;
  int dim_, mlp_, head_width_;
  std::vector<Tensor> rooms_;
};

}  // namespace

void unit_phases_forward(const UnitRecurrenceArgs& args) {
  PhaseChain(args).forward();
}

void unit_phases_backward(const UnitRecurrenceArgs& args) {
  PhaseChain(args).backward();
}

}  // namespace eddy::cuda
