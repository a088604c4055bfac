// Checks, buffers and tape node of the unit recurrence and of the block recurrence with forget. The weight
// gradients are products over all steps at once.
#include "ops/recurrence/unit_recurrence.h"

#include <algorithm>

#include "ops/cast/widen.h"
#include "ops/core/checks.h"
#include "ops/product/packed_gemm.h"
#include "ops/recurrence/block_forget.h"
#include "ops/recurrence/recurrence_layer.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace recurrence;

namespace {

// Room for the five weights packed for the CPU's products.
Tensor packed_weights(std::int64_t dim, std::int64_t mlp, Dtype dtype) {
  const auto elements = [&](const auto& gemm) {
    constexpr std::int64_t kAlign = 5 * 15;  // each begins on a cache line
    return 3 * gemm.packed_elements(dim, dim) + gemm.packed_elements(dim, mlp) +
           gemm.packed_elements(mlp, dim) + kAlign;
  };
  const PackedGemmKernels& kernels = packed_gemm_kernels();
  return Tensor::empty({dtype == Dtype::f32 ? elements(kernels.f32) : elements(kernels.f64)}, dtype);
}

// How the rows of x are divided into steps.
struct Steps {
  std::int64_t time, batch, sequences, block, last;
  Tensor keys;  // see UnitRecurrenceArgs::keys
};

// Runs the recurrence over rows x [.., dim], which are in the order of the steps, with the kernels `forward`
// and `backward`, and records it. `stores_bf16`: these kernels store bf16 where products are bf16.
UnitRecurrenceResult chain(const char* op, const Slot<UnitRecurrenceArgs>& forward,
                           const Slot<UnitRecurrenceArgs>& backward, const Steps& steps, const Tensor& x,
                           const Tensor& qkv, const UnitRecurrenceWeights& given,
                           const UnitRecurrenceOptions& options, bool stores_bf16, const Tensor& key_any,
                           const Tensor& value_any) {
  const UnitRecurrenceWeights w = row_major(given);
  const Tensor key = row_major(key_any), value = row_major(value_any);
  check_weights(op, w, x);
  const std::int64_t batch = steps.sequences, dim = x.dim(-1), mlp = w.up.dim(0);
  if (options.heads < 1 || dim % options.heads != 0)
    fail<ShapeError>("{}: heads must divide dim: heads {}, dim {}", op, options.heads, dim);
  const Dtype dtype = x.dtype();
  const auto shape = [&](std::int64_t width) { return x.shape().with(x.rank() - 1, width); };
  check_kind(op, "qkv", qkv, shape(3 * dim), x);
  check_kind(op, "key", key, {batch, dim}, x);
  check_kind(op, "value", value, {batch, dim}, x);

  const Tensor x_rows = raw::contiguous(x), qkv_rows = raw::contiguous(qkv);
  const Tensor wkv = raw::narrow(w.wqkv, 0, dim, 2 * dim);
  const Tensor wkv_bias = w.wqkv_bias.defined() ? raw::narrow(w.wqkv_bias, 0, dim, 2 * dim) : Tensor();
  const auto buffer = [&](std::int64_t width) { return Tensor::empty(shape(width), dtype, x.device()); };
  const Tensor h = buffer(dim), k = buffer(dim), v = buffer(dim);

  UnitRecurrenceArgs args{};
  args.dtype = dtype;
  args.time = steps.time;
  args.batch = steps.batch;
  args.sequences = steps.sequences;
  args.block = steps.block;
  args.last = steps.last;
  args.keys = static_cast<const RandomKey*>(data_of(steps.keys));
  bind(args, w, options, stores_bf16);
  const SavedRows kept = saved_rows(args, h);
  args.wkv = data_of(wkv);
  args.wkv_bias = data_of(wkv_bias);
  args.x = x_rows.raw_data();
  args.qkv = qkv_rows.raw_data();
  args.key0 = data_of(key);
  args.value0 = data_of(value);
  args.h = h.raw_data();
  args.key = k.raw_data();
  args.value = v.raw_data();
  const bool on_cpu = x.device().type == DeviceType::cpu;
  const Tensor packed = on_cpu ? packed_weights(dim, mlp, dtype) : Tensor();
  const Tensor scratch = Tensor::empty({steps.batch, std::max(dim, mlp)}, dtype, x.device());
  args.packed = on_cpu ? packed.raw_data() : nullptr;
  args.scratch = scratch.raw_data();
  forward(x.device(), args);

  constexpr int kX = 0, kQkv = 1, kWeights = 2;
  std::vector<Tensor> inputs{x, qkv};
  for (const Tensor& weight : in_order(given)) inputs.push_back(weight);
  const std::vector<Tensor> saved{x_rows,    qkv_rows,   w.norm1,    w.wqkv,     w.wo,       w.norm2,
                                  w.up,      w.down,     key,        value,      h,          k,
                                  v,         kept.o,     kept.r,     kept.a1,    kept.a2,    kept.u,
                                  kept.gate, kept.mean1, kept.rstd1, kept.mean2, kept.rstd2, steps.keys};
  record_many(op, inputs, {h, k, v}, saved, [args, dim, slot = &backward](VjpContext& context) {
    for (int i = 0; i < 24; ++i) static_cast<void>(context.saved(i));  // checks versions
    const Tensor &sh = context.saved(10), &so = context.saved(13), &sr = context.saved(14),
                 &sa1 = context.saved(15), &sa2 = context.saved(16), &su = context.saved(17);
    const Tensor dh = writable_gradient(context, 0), dk = writable_gradient(context, 1),
                 dv = writable_gradient(context, 2);
    const auto rows = [&](std::int64_t width, Dtype stored_as) {
      return Tensor::empty(sh.shape().with(sh.rank() - 1, width), stored_as, sh.device());
    };
    const Tensor dx = rows(dim, sh.dtype()), dqkv = rows(3 * dim, sh.dtype());
    const Tensor dkv = args.kept == args.dtype ? Tensor() : rows(2 * dim, args.kept);
    UnitRecurrenceArgs a = args;
    const BackwardRows back = backward_rows(a, sh, su);
    a.dh = dh.raw_data();
    a.dkey = dk.raw_data();
    a.dvalue = dv.raw_data();
    a.dx = dx.raw_data();
    a.dqkv = dqkv.raw_data();
    a.dproducts = dkv.defined() ? dkv.raw_data() : nullptr;
    const bool cpu = sh.device().type == DeviceType::cpu;
    const Tensor packed_again = cpu ? packed_weights(a.dim, a.mlp, a.dtype) : Tensor();
    const Tensor step = Tensor::empty({a.batch, std::max(a.dim, a.mlp)}, a.dtype, sh.device());
    a.packed = cpu ? packed_again.raw_data() : nullptr;
    a.scratch = step.raw_data();
    (*slot)(sh.device(), a);

    GradSink& sink = context.sink;
    if (sink.needs(kX)) sink.give(kX, dx);
    if (sink.needs(kQkv)) sink.give(kQkv, dqkv);
    give_weight_gradients(context, kWeights,
                          {{back.da1, sh, context.saved(19), context.saved(20)},
                           {back.da2, sr, context.saved(21), context.saved(22)},
                           back.dattn,
                           so,
                           back.du,
                           sa2,
                           back.dmlp,
                           back.act});
    // For the rows of k and v of wqkv: one product if the kernel stored both gradients side by side, else
    // two.
    const std::vector<Tensor> dkeys = dkv.defined() ? std::vector{dkv} : std::vector{dk, dv};
    if (sink.needs(kWeights + kWqkv))
      sink.into(kWeights + kWqkv, [&](const Tensor& dst, float beta) {
        if (beta == 0) raw::fill(raw::narrow(dst, 0, 0, dim), 0);  // no q of h is computed
        std::int64_t row = dim;
        for (const Tensor& dy : dkeys) {
          weight_product(dst, row, dy, sa1, beta);
          row += dy.dim(-1);
        }
      });
    if (sink.needs(kWeights + kWqkvBias))
      sink.slice(kWeights + kWqkvBias, 0, dim, 2 * dim, [&](const Tensor& dst) {
        std::int64_t row = 0;
        for (const Tensor& dy : dkeys) {
          add_rows(raw::narrow(dst, 0, row, dy.dim(-1)), dy);
          row += dy.dim(-1);
        }
      });
  });
  return {h, k, v};
}

// Whether x's device runs all steps as one kernel, which stores bf16 where products are bf16.
bool one_kernel(const Tensor& x, const UnitRecurrenceWeights& w, const UnitRecurrenceOptions& options) {
  if (x.device() == kCpu || options.products != Dtype::bf16) return false;
  check_weights("unit_recurrence", w, x);
  bool fits = false;
  unit_recurrence_supports_slot(x.device(),
                                {x.dim(2), w.up.dim(0), options.heads, x.dim(1), 1, options.products, &fits});
  return fits;
}

}  // namespace

UnitRecurrenceResult unit_recurrence(const Tensor& x, const Tensor& qkv, const UnitRecurrenceWeights& weights,
                                     const UnitRecurrenceOptions& options, const Tensor& key,
                                     const Tensor& value) {
  if (widens_anywhere(x)) {
    UnitRecurrenceOptions in_bf16 = options;
    in_bf16.products = Dtype::bf16;
    const UnitRecurrenceResult result =
        unit_recurrence(wide(x), wide(qkv), wide_weights(weights), in_bf16, wide(key), wide(value));
    return {narrowed(result.h), narrowed(result.key), narrowed(result.value)};
  }
  checks::floating("unit_recurrence", x);
  if (x.rank() != 3 || x.elements() == 0)
    fail<ShapeError>("unit_recurrence: x has shape {} ([time, batch, dim], none of them 0)",
                     to_string(x.shape()));
  const std::int64_t batch = x.dim(1);
  return chain("unit_recurrence", unit_recurrence_forward_slot, unit_recurrence_backward_slot,
               {x.dim(0), batch, batch, 1, 1, {}}, x, qkv, weights, options, one_kernel(x, weights, options),
               key, value);
}

bool block_forget_fits(const Tensor& x, std::int64_t mlp, const BlockForgetOptions& options) {
  if (x.device() == kCpu) return false;
  bool fits = false;
  block_forget_supports_slot(x.device(), {x.dim(-1), mlp, options.chain.heads, options.sequences,
                                          options.block, options.chain.products, &fits});
  return fits;
}

UnitRecurrenceResult block_forget(const Tensor& x, const Tensor& qkv, const UnitRecurrenceWeights& weights,
                                  const BlockForgetOptions& options) {
  checks::floating("block_forget", x);
  const std::int64_t sequences = options.sequences, block = options.block;
  if (x.rank() != 2 || x.elements() == 0 || sequences < 1 || block < 1 || x.dim(0) % sequences != 0)
    fail<ShapeError>("block_forget: x has shape {} ([{} sequences x positions, dim], in blocks of {})",
                     to_string(x.shape()), sequences, block);
  const std::int64_t positions = x.dim(0) / sequences, time = (positions + block - 1) / block;
  Tensor keys;
  if (options.chain.dropout > 0) {
    if (static_cast<std::int64_t>(options.keys.size()) != 3 * time)
      fail<ValueError>("block_forget: {} keys for dropout in {} blocks (three for each)", options.keys.size(),
                       time);
    keys = keys_on(x, options.keys);
  }
  return chain("block_forget", block_forget_forward_slot, block_forget_backward_slot,
               {time, sequences * block, sequences, block, positions - (time - 1) * block, keys}, x, qkv,
               weights, options.chain, true, {}, {});
}

}  // namespace eddy
