// Checks and kernel calls of the unit recurrence.
#include "ops/recurrence/unit_recurrence.h"

#include <cmath>

#include "autograd/named_values.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_ways.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/repeated_products.h"
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
  const auto run = [weights, key0 = data_or_null(first_key), value0 = data_or_null(first_value)](
                       const Device& device, const StateRecurrenceArgs& state) {
    UnitRecurrenceArgs args{state, key0, value0, {}};
    PackedWeights packed;
    if (chooses_as_cpu(device)) set_panels(args, weights, packed);
    (state.dh == nullptr ? unit_recurrence_forward_slot : unit_recurrence_backward_slot)(device, args);
  };
  const std::int64_t batch = x.dim(1);
  UnitRecurrenceResult chain =
      run_chain("unit_recurrence", run, {x.dim(0), batch, batch, 1, 1, {}}, x, qkv, weights, options,
                x.device().type == DeviceType::cuda, {first_key, first_value});
  name_value("gate", [&] { return gates_of(qkv, chain.key, first_key, options.heads); });
  return chain;
}

}  // namespace eddy
