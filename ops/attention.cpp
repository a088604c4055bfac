// Checks, work memory and gradients of blocked attention; the kernels are in attention.isa.cpp, where the
// derivation of the backward stands.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "tensor/format.h"
#include "tensor/thread_pool.h"

namespace eddy {

constinit Slot<AttentionArgs> attention_forward_slot{"attention_forward"};
constinit Slot<AttentionBackwardArgs> attention_backward_slot{"attention_backward"};

namespace detail {

void check_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& options) {
  checks::floating(op, q, "q");
  checks::floating(op, k, "k");
  checks::floating(op, v, "v");
  checks::same_kind(op, q, k);
  checks::same_kind(op, q, v);
  if (q.rank() != 4)
    fail<ShapeError>("{}: q has shape {} ([batch, queries, heads, head_size])", op, to_string(q.shape()));
  if (k.rank() != 4)
    fail<ShapeError>("{}: k has shape {} ([batch, keys, kv_heads, head_size])", op, to_string(k.shape()));
  if (k.shape() != v.shape())
    fail<ShapeError>("{}: k and v differ: {} and {} (equal shapes)", op, to_string(k.shape()),
                     to_string(v.shape()));
  if (q.dim(0) != k.dim(0))
    fail<ShapeError>("{}: batch sizes differ: q {}, k {} (one batch)", op, q.dim(0), k.dim(0));
  if (q.dim(3) != k.dim(3))
    fail<ShapeError>("{}: head sizes differ: q {}, k {} (one head_size)", op, q.dim(3), k.dim(3));
  const std::int64_t heads = q.dim(2), kv_heads = k.dim(2);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0)
    fail<ShapeError>("{}: kv_heads must divide heads: heads {}, kv_heads {}", op, heads, kv_heads);
  if (!(options.dropout >= 0 && options.dropout < 1))
    fail<ValueError>("{}: dropout {} (at least 0 and below 1)", op, options.dropout);
  if (!std::isfinite(options.scale))
    fail<ValueError>("{}: scale {} (finite; 0 stands for 1 / sqrt(head_size))", op, options.scale);
}

double attention_scale(const AttentionOptions& options, std::int64_t head_size) {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(head_size));
}

std::uint32_t attention_drop_below(const AttentionOptions& options) {
  return static_cast<std::uint32_t>(std::ceil(options.dropout * 0x1p24));
}

}  // namespace detail

namespace {

// x, or a copy whose last axis has stride 1.
Tensor readable(const Tensor& x) {
  return x.dim(-1) <= 1 || x.strides()[x.rank() - 1] == 1 ? x : raw::copy(x);
}

AttentionStrides strides_of(const Tensor& x) {
  return {x.strides()[0], x.strides()[1], x.strides()[2]};
}

bool nothing_to_mix(const Tensor& q, const Tensor& k) {
  return q.elements() == 0 || k.elements() == 0;
}

AttentionArgs arguments(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  AttentionArgs args{};
  args.dtype = q.dtype();
  args.causal = options.causal;
  args.batch = q.dim(0);
  args.queries = q.dim(1);
  args.heads = q.dim(2);
  args.head_size = q.dim(3);
  args.keys = k.dim(1);
  args.kv_heads = k.dim(2);
  args.scale = detail::attention_scale(options, args.head_size);
  args.drop_below = detail::attention_drop_below(options);
  args.keep_scale = 1 / (1 - options.dropout);
  args.dropout_key = options.dropout_key;
  args.q = q.raw_data();
  args.k = k.raw_data();
  args.v = v.raw_data();
  args.q_strides = strides_of(q);
  args.k_strides = strides_of(k);
  args.v_strides = strides_of(v);
  return args;
}

// Working memory for the kernel, alive while the returned tensor is. Its size depends on head_size and
// threads alone.
Tensor lend_scratch(AttentionArgs& args, const Device& device) {
  if (device.type != DeviceType::cpu) return {};
  const double flops = 4.0 * static_cast<double>(args.batch * args.heads * args.queries) *
                       static_cast<double>(args.keys * args.head_size);
  // Below some 2^20 operations, 10 us, waking another thread costs more than it saves.
  args.threads = flops < 0x1p20 ? 1 : thread_count();
  const Tensor scratch =
      Tensor::empty({args.threads * attention_scratch(args.head_size).elements}, args.dtype, device);
  args.scratch = scratch.raw_data();
  return scratch;
}

struct Mixed {
  Tensor output, log_sum;
};

Mixed forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const Mixed mixed{Tensor::empty(q.shape(), q.dtype(), q.device()),
                    Tensor::empty({q.dim(0), q.dim(2), q.dim(1)}, q.dtype(), q.device())};
  if (nothing_to_mix(q, k)) {
    raw::fill(mixed.output, 0);
    return mixed;
  }
  AttentionArgs args = arguments(q, k, v, options);
  args.output = mixed.output.raw_data();
  args.log_sum = mixed.log_sum.raw_data();
  const Tensor scratch = lend_scratch(args, q.device());
  attention_forward_slot(q.device(), args);
  return mixed;
}

// Overwrites dq, dk and dv, of any strides with a last one of 1; an undefined one is not computed.
void backward_into(const Tensor& q, const Tensor& k, const Tensor& v, const Mixed& mixed,
                   const Tensor& doutput, const AttentionOptions& options, const Tensor& dq, const Tensor& dk,
                   const Tensor& dv) {
  if (nothing_to_mix(q, k)) {
    for (const Tensor* gradient : {&dq, &dk, &dv})
      if (gradient->defined()) raw::fill(*gradient, 0);
    return;
  }
  AttentionBackwardArgs args{};
  args.forward = arguments(q, k, v, options);
  args.forward.output = mixed.output.raw_data();
  args.forward.log_sum = mixed.log_sum.raw_data();
  args.doutput = doutput.raw_data();
  const auto target = [](const Tensor& gradient, void*& data, AttentionStrides& strides) {
    if (!gradient.defined()) return;
    data = gradient.raw_data();
    strides = strides_of(gradient);
  };
  target(dq, args.dq, args.dq_strides);
  target(dk, args.dk, args.dk_strides);
  target(dv, args.dv, args.dv_strides);
  const Tensor scratch = lend_scratch(args.forward, q.device());
  attention_backward_slot(q.device(), args);
}

// Part 0, 1 or 2 (q, k, v) of a [batch, time, 3 dim] tensor as [batch, time, heads, head_size], on the same
// bytes.
Tensor packed_part(const Tensor& qkv, int part, std::int64_t heads) {
  const std::int64_t dim = qkv.dim(2) / 3;
  return raw::reshape(raw::narrow(qkv, 2, part * dim, dim), {qkv.dim(0), qkv.dim(1), heads, dim / heads});
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  detail::check_attention("attention", q, k, v, options);
  const Tensor q_read = readable(q), k_read = readable(k), v_read = readable(v);
  const Mixed mixed = forward(q_read, k_read, v_read, options);
  return record("attention", {q, k, v}, mixed.output, {q_read, k_read, v_read, mixed.output, mixed.log_sum},
                [options](VjpContext& context) {
                  Tensor gradient[3];
                  for (int i = 0; i < 3; ++i)
                    if (context.sink.needs(i)) {
                      const Tensor& x = context.saved(i);
                      gradient[i] = Tensor::empty(x.shape(), x.dtype(), x.device());
                    }
                  backward_into(context.saved(0), context.saved(1), context.saved(2),
                                {context.saved(3), context.saved(4)}, raw::contiguous(context.dy()), options,
                                gradient[0], gradient[1], gradient[2]);
                  for (int i = 0; i < 3; ++i)
                    if (gradient[i].defined()) context.sink.give(i, gradient[i]);
                });
}

Tensor attention_packed(const Tensor& qkv, std::int64_t heads, const AttentionOptions& options) {
  checks::floating("attention_packed", qkv, "qkv");
  if (qkv.rank() != 3)
    fail<ShapeError>("attention_packed: qkv has shape {} ([batch, time, 3 dim])", to_string(qkv.shape()));
  if (heads < 1) fail<ValueError>("attention_packed: heads {} (at least 1)", heads);
  if (qkv.dim(2) % (3 * heads) != 0)
    fail<ShapeError>(
        "attention_packed: 3 heads must divide the width: width {}, heads {} (columns q, k, v of dim each)",
        qkv.dim(2), heads);
  const Tensor rows = readable(qkv);
  const Tensor q = packed_part(rows, 0, heads), k = packed_part(rows, 1, heads),
               v = packed_part(rows, 2, heads);
  detail::check_attention("attention_packed", q, k, v, options);
  const Mixed mixed = forward(q, k, v, options);
  const Tensor y = raw::reshape(mixed.output, {qkv.dim(0), qkv.dim(1), qkv.dim(2) / 3});
  return record("attention_packed", {qkv}, y, {rows, mixed.output, mixed.log_sum},
                [options, heads](VjpContext& context) {
                  if (!context.sink.needs(0)) return;
                  const Tensor& x = context.saved(0);
                  const Tensor gradient = Tensor::empty(x.shape(), x.dtype(), x.device());
                  backward_into(packed_part(x, 0, heads), packed_part(x, 1, heads), packed_part(x, 2, heads),
                                {context.saved(1), context.saved(2)}, raw::contiguous(context.dy()), options,
                                packed_part(gradient, 0, heads), packed_part(gradient, 1, heads),
                                packed_part(gradient, 2, heads));
                  context.sink.give(0, gradient);
                });
}

}  // namespace eddy
