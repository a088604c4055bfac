// Checks, the choice of kernel, and the node of window attention.
#include "ops/attention/window_attention.h"

#include <cmath>

#include "autograd/named_values.h"
#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_probabilities.h"
#include "ops/attention/attention_scratch.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_ways.h"
#include "ops/cpu/isa.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {

using namespace detail;

namespace {

// Blocked attention is faster if fewer than a quarter of the lanes are in use, or if the probabilities of 16
// sequences do not fit the second-level cache (2 x 2^14 x 16 numbers, 2 MiB).
constexpr std::int64_t kLeastBatch = kWindowLanes / 4;
constexpr std::int64_t kMostPairs = 1 << 14;
// So it is for f32 heads of this size and more, and of half of it where it multiplies on tiles: 4 heads of 64 take
// 14 ms here, 11 there and 5.4 on tiles (docs/choices.md).
constexpr std::int64_t kWideHead = 32;

void check(const Tensor& q, const Tensor& past, const Tensor& own, const WindowAttentionOptions& options) {
  detail::check_packed_keys("window_attention", q, past, own, options.heads);
  if (q.dim(1) > own.dim(1))
    fail<ShapeError>("window_attention: {} queries and {} own rows (each query is one of the own rows)",
                     q.dim(1), own.dim(1));
  if (!(options.dropout >= 0 && options.dropout < 1))
    fail<ValueError>("window_attention: dropout {} (at least 0 and below 1)", options.dropout);
}

// The same by blocked attention, which on a GPU reads the two parts in place.
Tensor by_attention(const Tensor& q, const Tensor& past, const Tensor& own,
                    const WindowAttentionOptions& options) {
  AttentionOptions attention_options;
  attention_options.causal = true;
  attention_options.dropout = options.dropout;
  attention_options.dropout_key = options.dropout_key;
  attention_options.precision = options.precision;
  return attention_packed_keys(q, past, own, options.heads, attention_options);
}

WindowRows rows_in(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.raw_data(), x.strides()[0], x.strides()[1]};
}

WindowAttentionArgs arguments(const Tensor& q, const Tensor& past, const Tensor& own,
                              const WindowAttentionOptions& options) {
  WindowAttentionArgs args{};
  args.dtype = q.dtype();
  args.batch = q.dim(0);
  args.queries = q.dim(1);
  args.past = past.defined() ? past.dim(1) : 0;
  args.own = own.dim(1);
  args.heads = options.heads;
  args.head_size = q.dim(2) / options.heads;
  args.scale = 1 / std::sqrt(static_cast<double>(args.head_size));
  args.drop_below = static_cast<std::uint32_t>(std::ceil(options.dropout * 0x1p24));
  args.keep_scale = 1 / (1 - options.dropout);
  args.dropout_key = options.dropout_key;
  args.precision = options.precision;
  args.q = rows_in(q);
  args.past_rows = rows_in(past);
  args.own_rows = rows_in(own);
  return args;
}

// Working memory for the kernel, which lives as long as the returned tensor.
Tensor attach_workspace(WindowAttentionArgs& args, Device device) {
  const double work = static_cast<double>(args.batch * args.heads * args.queries) *
                      static_cast<double>((args.past + args.own) * args.head_size);
  args.threads = work < 0x1p18 ? 1 : thread_count();  // waking another thread costs some 10 us
  const Tensor scratch = Tensor::empty({args.threads * window_attention_scratch(args)}, args.dtype, device);
  args.scratch = scratch.raw_data();
  return scratch;
}

// Runs a kernel of the CPU, or counts it.
void run(const Slot<WindowAttentionArgs>& kernel, Device device, const WindowAttentionArgs& args) {
  kernel(device, args);
}

}  // namespace

Tensor window_attention(const Tensor& q_any, const Tensor& past_any, const Tensor& own_any,
                        const WindowAttentionOptions& given) {
  if (must_upcast(q_any))
    return downcast(window_attention(upcast(q_any), upcast_like("window_attention", q_any, past_any),
                                     upcast_like("window_attention", q_any, own_any), given));
  check(q_any, past_any, own_any, given);
  WindowAttentionOptions options = given;
  options.precision = coarsest(given.precision, q_any, past_any, own_any);
  const std::int64_t keys = own_any.dim(1) + (past_any.defined() ? past_any.dim(1) : 0);
  const bool tiles = isa_level() == IsaLevel::amx && rounds_to_bf16(options.precision);
  const bool wide =
      q_any.dtype() == Dtype::f32 && q_any.dim(2) >= options.heads * (tiles ? kWideHead / 2 : kWideHead);
  // 16 queries side by side are faster than 16 sequences if they fill four fifths of the lanes.
  const std::int64_t queries = q_any.dim(1);
  const bool narrow_heads = 5 * queries >= 4 * ((queries + 15) / 16 * 16) &&
                            attention_has_narrow_heads(q_any.dtype(), q_any.dim(1), keys,
                                                       q_any.dim(2) / options.heads, options.precision);
  if (!chooses_as_cpu(q_any.device()) || q_any.dim(0) < kLeastBatch || q_any.elements() == 0 ||
      q_any.dim(1) * keys > kMostPairs || wide || narrow_heads)
    return by_attention(q_any, past_any, own_any, options);

  const Tensor q = detail::readable(q_any), past = detail::readable(past_any),
               own = detail::readable(own_any);
  name_value("probabilities", [&] {
    const std::int64_t dim = q.dim(2), heads = options.heads;
    const auto keys_of = [&](const Tensor& rows) {
      return reshape(narrow(rows, 2, 0, dim), {rows.dim(0), rows.dim(1), heads, dim / heads});
    };
    AttentionOptions causal;
    causal.causal = true;
    if (past.defined()) causal.past_keys = keys_of(past);
    return attention_probabilities(keys_of(q), keys_of(own), causal);
  });
  const Tensor output = Tensor::empty(q.shape(), q.dtype(), q.device());
  const std::int64_t groups = (q.dim(0) + kWindowLanes - 1) / kWindowLanes;
  const Tensor log_sum =
      Tensor::empty({groups, options.heads, q.dim(1), kWindowLanes}, q.dtype(), q.device());
  {
    WindowAttentionArgs args = arguments(q, past, own, options);
    args.output = output.raw_data();
    args.log_sum = log_sum.raw_data();
    const Tensor scratch = attach_workspace(args, q.device());
    run(window_attention_forward_slot, q.device(), args);
  }
  return record("window_attention", {q_any, past_any, own_any}, output, {q, past, own, log_sum},
                [options](VjpContext& context) {
                  const Tensor& saved_past = context.saved(1);
                  WindowAttentionArgs args =
                      arguments(context.saved(0), saved_past, context.saved(2), options);
                  args.log_sum = context.saved(3).raw_data();
                  const Tensor dy = raw::contiguous(context.dy());
                  args.doutput = dy.raw_data();
                  Tensor gradient[3];
                  for (int i = 0; i < 3; ++i) {
                    const Tensor& x = context.saved(i);
                    if (x.defined() && context.sink.needs(i))
                      gradient[i] = Tensor::empty(x.shape(), x.dtype(), x.device());
                  }
                  args.dq = data_or_null(gradient[0]);
                  args.dpast = data_or_null(gradient[1]);
                  args.down = data_or_null(gradient[2]);
                  const Tensor scratch = attach_workspace(args, dy.device());
                  run(window_attention_backward_slot, dy.device(), args);
                  for (int i = 0; i < 3; ++i)
                    if (gradient[i].defined()) context.sink.give(i, gradient[i]);
                });
}

}  // namespace eddy
