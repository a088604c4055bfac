// Checks and kernel calls of the unit recurrence.
#include "ops/recurrence/unit_recurrence.h"

#include <cmath>

#include "autograd/named_values.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/packed_weights.h"
#include "ops/recurrence/recurrence_layer.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;
using namespace recurrence;

namespace {

// Rows times steps below which packing the weights costs more than it saves, unless they are packed already.
constexpr std::int64_t kFewProducts = 16;

// Sets the panels of the arguments; `weights` owns those that no buffer of parameters keeps.
void set_panels(UnitRecurrenceArgs& args, const UnitRecurrenceWeights& w, PackedWeights& weights) {
  const bool forward = args.dh == nullptr;
  if (forward && args.time * args.batch < kFewProducts && !rounds_to_bf16(args.precision)) return;
  const Tensor factors[] = {raw::narrow(w.wqkv, 0, args.dim, args.dim),
                            raw::narrow(w.wqkv, 0, 2 * args.dim, args.dim), w.wo, w.up, w.down};
  for (std::size_t i = 0; i < std::size(factors); ++i) {
    const Tensor stored = raw::contiguous(factors[i]),
                 factor = forward ? raw::transpose(stored, 0, 1) : stored;
    args.panels[i] =
        PackedWeights::of(factor, &weights, args.precision)->panels_for(factor, 1, args.precision);
  }
}

// Calls the kernel: with dh null the forward one.
void run(const Device& device, UnitRecurrenceArgs args, const UnitRecurrenceWeights& weights) {
  PackedWeights packed;
  if (uses_cpu_path(device)) set_panels(args, weights, packed);
  (args.dh == nullptr ? unit_recurrence_forward_slot : unit_recurrence_backward_slot)(device, args);
}

// Runs and records the recurrence over checked x, from readable rows of the first key and value, or undefined ones.
UnitRecurrenceResult run_chain(const Tensor& x, const Tensor& qkv, const UnitRecurrenceWeights& given,
                               const UnitRecurrenceOptions& options, const Tensor& key0,
                               const Tensor& value0) {
  const char* const op = "unit_recurrence";
  const std::int64_t batch = x.dim(1);
  const UnitRecurrenceWeights w = contiguous_weights(given);
  check_weights(op, w, x, options);
  const std::int64_t dim = x.dim(-1);
  const auto rows_like = [](const Tensor& like, std::int64_t width, Dtype dtype) {
    return Tensor::empty(like.shape().with(like.rank() - 1, width), dtype, like.device());
  };
  check_kind(op, "qkv", qkv, x.shape().with(x.rank() - 1, 3 * dim), x);
  check_kind(op, "key", key0, {batch, dim}, x);
  check_kind(op, "value", value0, {batch, dim}, x);
  const Tensor x_rows = readable_rows(x), qkv_rows = readable_rows(qkv);
  const Tensor wkv = raw::narrow(w.wqkv, 0, dim, 2 * dim);
  const Tensor wkv_bias = w.wqkv_bias.defined() ? raw::narrow(w.wqkv_bias, 0, dim, 2 * dim) : Tensor();
  const Tensor h = rows_like(x, dim, x.dtype()), k = rows_like(x, dim, x.dtype()),
               v = rows_like(x, dim, x.dtype());
  UnitRecurrenceArgs args{};
  args.dtype = x.dtype();
  bind(args, Steps{x.dim(0), batch, batch, 1, 1, {}});
  bind(args, w, options, x.device().type == DeviceType::cuda);
  const SavedRows kept(args, h, h);
  args.key0 = data_or_null(key0);
  args.value0 = data_or_null(value0);
  args.wkv = data_or_null(wkv);
  args.wkv_bias = data_or_null(wkv_bias);
  args.x = x_rows.raw_data();
  args.qkv = qkv_rows.raw_data();
  args.h = h.raw_data();
  args.key = k.raw_data();
  args.value = v.raw_data();
  const auto attach_workspace = [device = x.device()](UnitRecurrenceArgs& to) {
    const Tensor scratch = Tensor::empty({to.batch, std::max(to.dim, to.mlp)}, to.dtype, device);
    to.scratch = scratch.raw_data();
    return scratch;
  };
  const Tensor scratch = attach_workspace(args);
  run(x.device(), args, given);

  constexpr int kX = 0, kQkv = 1, kWeights = 2, kH = 10;
  std::vector<Tensor> inputs{x, qkv};
  for (const Tensor& weight : in_order(given)) inputs.push_back(weight);
  const std::vector<Tensor> saved =
      kept.with({h, k, v, x_rows, qkv_rows, w.norm1, w.wqkv, w.wo, w.norm2, w.up, w.down, key0, value0});
  record_many(
      op, inputs, {h, k, v}, saved,
      [args, given, rows_like, attach_workspace,
       count = static_cast<int>(saved.size())](VjpContext& context) {
        for (int i = 0; i < count; ++i) static_cast<void>(context.saved(i));  // checks versions
        const SavedRows rows(context);
        const Tensor& sh = context.saved(kH);
        const Tensor dh = writable_gradient(context, 0), dk = writable_gradient(context, 1),
                     dv = writable_gradient(context, 2);
        UnitRecurrenceArgs a = args;
        const Tensor dx = rows_like(sh, a.dim, sh.dtype()), dqkv = rows_like(sh, 3 * a.dim, sh.dtype());
        const Tensor dkv = sh.device().type == DeviceType::cuda ? rows_like(sh, 2 * a.dim, a.kept) : Tensor();
        const BackwardRows back(a, sh, rows.u, sh);
        a.dh = dh.raw_data();
        a.dkey = dk.raw_data();
        a.dvalue = dv.raw_data();
        a.dx = dx.raw_data();
        a.dqkv = dqkv.raw_data();
        a.dkv = data_or_null(dkv);
        const Tensor step = attach_workspace(a);
        run(sh.device(), a, given);

        GradSink& sink = context.sink;
        if (sink.needs(kX)) sink.accumulate(kX, dx);
        if (sink.needs(kQkv)) sink.accumulate(kQkv, dqkv);
        accumulate_weight_gradients(context, kWeights, sh, rows, back, a.precision);
        // For the rows of k and v of wqkv: one product if the kernel stored both gradients side by side, as a GPU's do,
        // else two.
        const std::vector<Tensor> dkeys = dkv.defined() ? std::vector{dkv} : std::vector{dk, dv};
        if (sink.needs(kWeights + kWqkv))
          sink.into(kWeights + kWqkv, [&](const Tensor& dst, float beta) {
            if (beta == 0) raw::fill(raw::narrow(dst, 0, 0, a.dim), 0);  // no q of h is computed
            std::int64_t row = a.dim;
            for (const Tensor& dy : dkeys) {
              weight_product(dst, row, dy, rows.a1, beta, a.precision);
              row += dy.dim(-1);
            }
          });
        if (sink.needs(kWeights + kWqkvBias))
          sink.slice(kWeights + kWqkvBias, 0, a.dim, 2 * a.dim, [&](const Tensor& dst) {
            std::int64_t row = 0;
            for (const Tensor& dy : dkeys) {
              add_rows(raw::narrow(dst, 0, row, dy.dim(-1)), dy);
              row += dy.dim(-1);
            }
          });
      });
  return {h, k, v};
}

// The gates g [batch, heads, time], from what the chain reads and gives.
Tensor gates_of(const Tensor& qkv, const Tensor& key, const Tensor& first_key, std::int64_t heads) {
  const std::int64_t time = key.dim(0), batch = key.dim(1), dim = key.dim(2),
                     begin = first_key.defined() ? 0 : 1;
  if (time == 0) return Tensor::zeros({batch, heads, 0}, key.dtype(), key.device());
  const Shape by_head{time - begin, batch, heads, dim / heads};
  const auto rows = [&](const Tensor& x, std::int64_t column) {
    return reshape(narrow(narrow(x, 2, column, dim), 0, begin, time - begin), by_head);
  };
  Tensor before = narrow(key, 0, 0, time - 1);
  if (begin == 0) before = concat({reshape(first_key, {1, batch, dim}), before}, 0);
  const Tensor scores = sum(rows(qkv, 0) * (reshape(before, by_head) - rows(qkv, dim)), 3);
  Tensor gates = sigmoid(scores / std::sqrt(static_cast<double>(dim / heads)));
  if (begin == 1) gates = concat({Tensor::zeros({1, batch, heads}, gates.dtype(), gates.device()), gates}, 0);
  return permute(gates, {1, 2, 0});
}

}  // namespace

UnitRecurrenceResult unit_recurrence(const Tensor& x, const Tensor& qkv, const UnitRecurrenceWeights& weights,
                                     const UnitRecurrenceOptions& options, const Tensor& key,
                                     const Tensor& value) {
  if (is_bf16(x)) {
    UnitRecurrenceOptions in_bf16 = options;
    in_bf16.products = Dtype::bf16;
    const UnitRecurrenceResult result =
        unit_recurrence(upcast(x), upcast(qkv), upcast_weights(weights), in_bf16, upcast(key), upcast(value));
    return {downcast(result.h), downcast(result.key), downcast(result.value)};
  }
  checks::floating("unit_recurrence", x);
  if (x.rank() != 3 || x.elements() == 0)
    fail<ShapeError>("unit_recurrence: x has shape {} ([time, batch, dim], none of them 0)",
                     to_string(x.shape()));
  const Tensor first_key = readable_rows(key), first_value = readable_rows(value);
  UnitRecurrenceResult chain = run_chain(x, qkv, weights, options, first_key, first_value);
  name_value("gate", [&] { return gates_of(qkv, chain.key, first_key, options.heads); });
  return chain;
}

}  // namespace eddy
