// The choice of the kernel, and its node.
#include "ops/attention/window_attention.h"

#include "autograd/named_values.h"
#include "autograd/tape.h"
#include "ops/attention/attention_scratch.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/cpu/isa.h"
#include "ops/views/views.h"
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

WindowRows rows_in(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.raw_data(), x.strides()[0], x.strides()[1]};
}

WindowAttentionArgs arguments(const Tensor& q, const Tensor& past, const Tensor& own, std::int64_t heads,
                              const AttentionOptions& options) {
  WindowAttentionArgs args{};
  args.dtype = q.dtype();
  args.batch = q.dim(0);
  args.queries = q.dim(1);
  args.past = past.defined() ? past.dim(1) : 0;
  args.own = own.dim(1);
  args.heads = heads;
  args.head_size = q.dim(2) / heads;
  args.scale = attention_scale(options, args.head_size);
  args.drop_below = attention_drop_below(options);
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

bool detail::is_window(const Tensor& q, const Tensor& past, const Tensor& own, std::int64_t heads,
                       const AttentionOptions& options) {
  const AttentionBand band = attention_band(options);
  const std::int64_t queries = q.dim(1), keys = own.dim(1) + (past.defined() ? past.dim(1) : 0);
  if (!uses_cpu_path(q.device()) || q.dtype() == Dtype::bf16 || queries > own.dim(1) || band.least != 0 ||
      band.most < keys - 1)
    return false;
  const MatmulPrecision precision = coarsest(options.precision, q, past, own);
  const bool tiles = isa_level() == IsaLevel::amx && rounds_to_bf16(precision);
  const bool wide = q.dtype() == Dtype::f32 && q.dim(2) >= heads * (tiles ? kWideHead / 2 : kWideHead);
  // 16 queries side by side are faster than 16 sequences if they fill four fifths of the lanes.
  const bool narrow_heads = 5 * queries >= 4 * ((queries + 15) / 16 * 16) &&
                            attention_has_narrow_heads(q.dtype(), queries, keys, q.dim(2) / heads, precision);
  return q.dim(0) >= kLeastBatch && q.elements() > 0 && queries * keys <= kMostPairs && !wide &&
         !narrow_heads;
}

Tensor detail::window_attention(const Tensor& q_any, const Tensor& past_any, const Tensor& own_any,
                                std::int64_t heads, const AttentionOptions& given) {
  AttentionOptions options = given;
  options.precision = coarsest(given.precision, q_any, past_any, own_any);
  const Tensor q = readable(q_any), past = readable(past_any), own = readable(own_any);
  name_value("probabilities", [&] {
    const std::int64_t dim = q.dim(2);
    const auto keys_of = [&](const Tensor& rows) {
      return reshape(narrow(rows, 2, 0, dim), {rows.dim(0), rows.dim(1), heads, dim / heads});
    };
    AttentionOptions causal;
    causal.causal = true;
    causal.scale = options.scale;
    if (past.defined()) causal.past_keys = keys_of(past);
    return attention_probabilities(keys_of(q), keys_of(own), causal);
  });
  const Tensor output = Tensor::empty(q.shape(), q.dtype(), q.device());
  const std::int64_t groups = (q.dim(0) + kWindowLanes - 1) / kWindowLanes;
  const Tensor log_sum = Tensor::empty({groups, heads, q.dim(1), kWindowLanes}, q.dtype(), q.device());
  {
    WindowAttentionArgs args = arguments(q, past, own, heads, options);
    args.output = output.raw_data();
    args.log_sum = log_sum.raw_data();
    const Tensor scratch = attach_workspace(args, q.device());
    run(window_attention_forward_slot, q.device(), args);
  }
  return record("attention_packed_keys", {q_any, past_any, own_any}, output, {q, past, own, log_sum},
                [options, heads](VjpContext& context) {
                  const Tensor& saved_past = context.saved(1);
                  WindowAttentionArgs args =
                      arguments(context.saved(0), saved_past, context.saved(2), heads, options);
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
                    if (gradient[i].defined()) context.sink.accumulate(i, gradient[i]);
                });
}

}  // namespace eddy
