// Checks, working memory and gradients of blocked attention. The kernels are in attention.isa.cpp and
// attention_backward.isa.cpp, which also derives the backward.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/named_values.h"
#include "autograd/random_calls.h"
#include "autograd/tape.h"
#include "ops/attention/attention_partials.h"
#include "ops/attention/attention_scratch.h"
#include "ops/attention/window_attention.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/core/gradient_buffer.h"
#include "ops/norm/unit_norm.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/matmul.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {

using namespace detail;

bool detail::attention_reads_past(const Device& device) {
  return !uses_cpu_path(device);
}

namespace {

AttentionStrides strides_of(const Tensor& x) {
  return {x.strides()[0], x.strides()[1], x.strides()[2]};
}

// The tensors of a call as the kernels read them, or their gradients as the kernel writes them. Missing
// optional tensors and unwanted gradients are undefined.
struct Parts {
  Tensor q, k, v, head_scale, bias, positions, past_k, past_v;
};

struct Mixed {
  Tensor output, log_sum;
};

// The options without their tensors, which the node saves instead.
AttentionOptions without_tensors(AttentionOptions options) {
  options.head_scale = options.bias = options.positions = Tensor();
  options.past_keys = options.past_values = Tensor();
  return options;
}

// The address `rows` rows before a tensor's row 0.
void* counted_from(const Tensor& x, std::int64_t rows) {
  const auto bytes = static_cast<std::uintptr_t>(rows * x.strides()[1]) * dtype_bytes(x.dtype());
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(x.raw_data()) - bytes);
}

// The kernels' arguments. Kernels must not be called if no pair is visible: least > most, or a size of 0.
AttentionArgs arguments(const Parts& x, const Mixed& mixed, const AttentionOptions& options) {
  AttentionArgs args{};
  args.dtype = x.q.dtype();
  args.batch = x.q.dim(0);
  args.queries = x.q.dim(1);
  args.heads = x.q.dim(2);
  args.head_size = x.q.dim(3);
  args.past = x.past_k.defined() ? x.past_k.dim(1) : 0;
  args.keys = args.past + x.k.dim(1);
  args.kv_heads = x.k.dim(2);
  const AttentionBand band = detail::attention_band(options);
  args.least = std::max(band.least, 1 - args.queries);
  args.most = std::min(band.most, args.keys - 1);
  args.scale = detail::attention_scale(options, args.head_size);
  args.drop_below = detail::attention_drop_below(options);
  args.keep_scale = 1 / (1 - options.dropout);
  args.dropout_key = options.dropout_key;
  args.precision = options.precision;
  args.q = x.q.raw_data();
  args.k = counted_from(x.k, args.past);
  args.v = counted_from(x.v, args.past);
  args.q_strides = strides_of(x.q);
  args.k_strides = strides_of(x.k);
  args.v_strides = strides_of(x.v);
  if (args.past > 0) {
    args.past_k = x.past_k.raw_data();
    args.past_v = x.past_v.raw_data();
    args.past_k_strides = strides_of(x.past_k);
    args.past_v_strides = strides_of(x.past_v);
  }
  if (x.head_scale.defined()) args.head_scale = x.head_scale.raw_data();
  const auto table = [&args](const Tensor& from, const void*& data, std::int64_t& stride) {
    if (!from.defined()) return;
    data = from.raw_data();
    stride = from.strides()[0];
    args.distances = args.most + 1;
  };
  table(x.bias, args.bias, args.bias_stride);
  table(x.positions, args.positions, args.positions_stride);
  args.output = mixed.output.raw_data();
  args.log_sum = mixed.log_sum.raw_data();
  return args;
}

bool nothing_to_mix(const Parts& x, const AttentionArgs& args) {
  return x.q.elements() == 0 || args.keys == 0 || args.least > args.most;
}

// Working memory for the kernel, which lives as long as the returned tensor. It grows with the tables and the
// threads, not with the length; on a GPU it grows with the rows. `gradient` is null for a forward call.
Tensor attach_workspace(AttentionArgs& args, const AttentionBackwardArgs* gradient, const Device& device) {
  if (uses_cpu_path(device)) {
    const double flops =
        4.0 * static_cast<double>(args.batch * args.heads * args.queries) *
        static_cast<double>(std::min(args.keys, args.most - args.least + 1) * args.head_size);
    // Below some 2^20 operations, 10 us, waking another thread costs more than it saves.
    args.threads = flops < 0x1p20 ? 1 : thread_count();
  } else if (gradient == nullptr) {
    return {};
  }
  const Tensor scratch = Tensor::empty({attention_workspace(args, gradient, device)},
                                       uses_cpu_path(device) ? args.dtype : Dtype::f32, device);
  args.scratch = scratch.raw_data();
  return scratch;
}

Mixed forward(const Parts& x, const AttentionOptions& options) {
  const Tensor& q = x.q;
  const Mixed mixed{Tensor::empty(q.shape(), q.dtype(), q.device()),
                    Tensor::empty({q.dim(0), q.dim(2), q.dim(1)},
                                  q.dtype() == Dtype::bf16 ? Dtype::f32 : q.dtype(), q.device())};
  AttentionArgs args = arguments(x, mixed, options);
  if (nothing_to_mix(x, args)) {
    raw::fill(mixed.output, 0);
    return mixed;
  }
  const Tensor scratch = attach_workspace(args, nullptr, q.device());
  attention_forward_slot(q.device(), args);
  return mixed;
}

// Writes the gradients that are defined. Those of bias and positions are added to, that of head_scale if
// head_scale_beta is 1. Gradients and doutput, [batch, queries, heads, head_size], may have any strides with a
// last one of 1; on a GPU bias and positions are contiguous partial tables. q_unit, k_unit: as in
// AttentionBackwardArgs, or undefined.
void backward_into(const Parts& x, const Mixed& mixed, const Tensor& doutput, const AttentionOptions& options,
                   const Parts& gradients, float head_scale_beta, const Tensor& q_unit,
                   const Tensor& k_unit) {
  AttentionBackwardArgs args{};
  args.dtype = x.q.dtype();
  args.forward = arguments(x, mixed, options);
  const bool nothing = nothing_to_mix(x, args.forward);
  for (const Tensor* gradient :
       {&gradients.q, &gradients.k, &gradients.v, &gradients.past_k, &gradients.past_v})
    if (nothing && gradient->defined()) raw::fill(*gradient, 0);
  if (nothing && gradients.head_scale.defined() && head_scale_beta == 0) raw::fill(gradients.head_scale, 0);
  if (nothing) return;
  args.doutput = doutput.raw_data();
  args.doutput_strides = strides_of(doutput);
  const auto rows = [](const Tensor& gradient, void*& data, AttentionStrides& strides, std::int64_t before) {
    if (!gradient.defined() || gradient.elements() == 0) return;
    data = counted_from(gradient, before);
    strides = strides_of(gradient);
  };
  rows(gradients.q, args.dq, args.dq_strides, 0);
  rows(gradients.k, args.dk, args.dk_strides, args.forward.past);
  rows(gradients.v, args.dv, args.dv_strides, args.forward.past);
  rows(gradients.past_k, args.past_dk, args.past_dk_strides, 0);
  rows(gradients.past_v, args.past_dv, args.past_dv_strides, 0);
  if (gradients.head_scale.defined()) args.dhead_scale = gradients.head_scale.raw_data();
  args.head_scale_beta = head_scale_beta;
  if (q_unit.defined()) {
    args.q_unit = q_unit.data<float>();
    args.k_unit = k_unit.data<float>();
  }
  const auto table = [](const Tensor& gradient, void*& data, std::int64_t& stride) {
    if (!gradient.defined()) return;
    data = gradient.raw_data();
    stride = gradient.strides()[gradient.rank() - 2];
  };
  table(gradients.bias, args.dbias, args.dbias_stride);
  table(gradients.positions, args.dpositions, args.dpositions_stride);
  if (gradients.positions.defined() && gradients.positions.rank() == 4)
    args.dpositions_part = gradients.positions.strides()[1];
  const Tensor scratch = attach_workspace(args.forward, &args, x.q.device());
  attention_backward_slot(x.q.device(), args);
}

// The gradient of a table by distance on a GPU, as partial tables to which all calls that share the table add.
class PartialTables final : public DeferredGradient {
 public:
  // Returns the partial tables of a shape, zeros at first. Calls of other batches may have another.
  Tensor parts(const Shape& shape, Device device) {
    for (const Tensor& parts : parts_)
      if (parts.shape() == shape) return parts;
    return parts_.emplace_back(Tensor::zeros(shape, Dtype::f32, device));
  }
  void add_to(const Tensor& dst, float beta) override {
    for (const Tensor& parts : parts_) add_partial_sums({{parts, {dst, std::exchange(beta, 1.0f)}}});
  }

 private:
  std::vector<Tensor> parts_;
};

// The tensor to which the kernels add the gradient of input k, a table by distance. q: its call's queries.
Tensor table_gradient(VjpContext& v, int k, const Tensor& table, bool has_heads, const Tensor& q) {
  if (uses_cpu_path(q.device()) || q.elements() == 0 || table.elements() == 0) return v.sink.open_zeroed(k);
  const std::int64_t heads = q.dim(2), runs = attention_table_runs(q.dim(0), heads).runs;
  return v.sink.defer<PartialTables>(k).parts(
      has_heads ? Shape{runs, heads, table.dim(1)} : Shape{runs, heads, table.dim(0), table.dim(1)},
      q.device());
}

// Part 0 .. count - 1 of the columns of a [batch, time, count dim] tensor as [batch, time, heads,
// head_size], on the same bytes.
Tensor packed_part(const Tensor& x, int part, int count, std::int64_t heads) {
  if (!x.defined()) return {};
  const std::int64_t dim = x.dim(2) / count, head_size = dim / heads, step = x.strides()[2];
  const std::int64_t strides[] = {x.strides()[0], x.strides()[1], head_size * step, step};
  return Tensor::over(x.buffer(), x.offset() + part * dim * step, {x.dim(0), x.dim(1), heads, head_size},
                      strides, x.dtype());
}

// x [batch, time, dim] as [batch, time, heads, dim / heads].
Tensor by_head(const Tensor& x, std::int64_t heads) {
  return reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads});
}

// How the inputs of a node hold the parts; the same for its gradients, of which any may be undefined.
// Tables are head_scale, bias and positions, in this order.
struct Form {
  const char* op;
  Parts (*parts)(const std::vector<Tensor>& inputs, std::int64_t heads);
  int tables;  // the place of head_scale among the inputs, or -1 if there are no tables

  bool is_head_scale(int input) const { return tables >= 0 && input == tables; }
  bool is_bias(int input) const { return tables >= 0 && input == tables + 1; }
  bool is_table_by_distance(int input) const {
    return is_bias(input) || (tables >= 0 && input == tables + 2);
  }
};

const Form kSeparate{"attention_bthd",
                     [](const std::vector<Tensor>& x, std::int64_t) {
                       return Parts{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
                     },
                     3};
const Form kPacked{"attention_packed",
                   [](const std::vector<Tensor>& x, std::int64_t heads) {
                     return Parts{packed_part(x[0], 0, 3, heads),
                                  packed_part(x[0], 1, 3, heads),
                                  packed_part(x[0], 2, 3, heads),
                                  x[1],
                                  x[2],
                                  x[3],
                                  packed_part(x[4], 0, 2, heads),
                                  packed_part(x[4], 1, 2, heads)};
                   },
                   1};
const Form kPackedKeys{"attention_packed_keys",
                       [](const std::vector<Tensor>& x, std::int64_t heads) {
                         return Parts{packed_part(x[0], 0, 1, heads),
                                      packed_part(x[2], 0, 2, heads),
                                      packed_part(x[2], 1, 2, heads),
                                      {},
                                      {},
                                      {},
                                      packed_part(x[1], 0, 2, heads),
                                      packed_part(x[1], 1, 2, heads)};
                       },
                       -1};

// Checks what all forms share, runs the kernel and records it. The result has the shape `shape`.
Tensor mix(const Form& form, const std::vector<Tensor>& inputs, std::int64_t heads, const Shape& shape,
           const AttentionOptions& wanted) {
  const Parts given = form.parts(inputs, heads);
  AttentionOptions options = wanted;
  for (const Tensor& x : inputs) options.precision = coarsest(options.precision, x);
  AttentionOptions all = options;
  all.past_keys = given.past_k;
  all.past_values = given.past_v;
  detail::check_attention(form.op, given.q, given.k, given.v, all);
  std::vector<Tensor> saved;
  for (const Tensor& x : inputs) {
    const int input = static_cast<int>(saved.size());
    const bool replaced = options.unit_eps && input < 2;  // by unit vectors, below
    saved.push_back(replaced ? x : form.is_head_scale(input) ? contiguous_or_none(x) : detail::readable(x));
  }
  detail::UnitRows q_unit, k_unit;  // q and k are the first inputs of the form that takes unit_eps
  if (options.unit_eps) {
    q_unit = detail::unit_rows(form.op, inputs[0], *options.unit_eps);
    k_unit = detail::unit_rows(form.op, inputs[1], *options.unit_eps);
    saved[0] = q_unit.y;
    saved[1] = k_unit.y;
  }
  name_value("probabilities", [&] {
    const Parts x = form.parts(saved, heads);
    AttentionOptions seen = detail::without_unit(options);
    seen.head_scale = x.head_scale;
    seen.bias = x.bias;
    seen.positions = x.positions;
    seen.past_keys = x.past_k;
    return attention_probabilities(x.q, x.k, seen);
  });
  const Mixed mixed = forward(form.parts(saved, heads), options);
  saved.insert(saved.end(), {mixed.output, mixed.log_sum, q_unit.scale, k_unit.scale});
  const Tensor y = raw::reshape(mixed.output, shape);
  record_many(form.op, inputs, {y}, saved,
              [plain = without_tensors(options), form, heads,
               count = static_cast<int>(inputs.size())](VjpContext& v) {
                std::vector<Tensor> x, gradients;
                for (int i = 0; i < count; ++i) x.push_back(v.saved(i));
                const Parts parts = form.parts(x, heads);
                const GradientBuffer dhead_scale =
                    form.tables < 0 ? GradientBuffer{} : gradient_buffer(v, form.tables);
                // A table that many calls share has one gradient, to which all of them add.
                const auto gradient_of = [&](int i) {
                  if (form.is_head_scale(i)) return dhead_scale.tensor;
                  if (!v.sink.needs(i)) return Tensor();
                  if (form.is_table_by_distance(i))
                    return table_gradient(v, i, x[i], form.is_bias(i), parts.q);
                  return Tensor::empty(x[i].shape(), x[i].dtype(), x[i].device());
                };
                for (int i = 0; i < count; ++i) gradients.push_back(gradient_of(i));
                const Tensor &output = v.saved(count), &dy = v.dy();
                const Tensor doutput = dy.shape() == output.shape()
                                           ? detail::readable(dy)
                                           : raw::reshape(raw::contiguous(dy), output.shape());
                backward_into(parts, {output, v.saved(count + 1)}, doutput, plain,
                              form.parts(gradients, heads), dhead_scale.beta, v.saved(count + 2),
                              v.saved(count + 3));
                for (int i = 0; i < count; ++i)
                  if (!form.is_head_scale(i) && !form.is_table_by_distance(i) && gradients[i].defined())
                    v.sink.accumulate(i, gradients[i]);
                // Anomaly mode checks each node's own gradient.
                if (anomaly_mode() && form.tables >= 0)
                  for (const int i : {form.tables + 1, form.tables + 2})
                    if (v.sink.needs(i)) v.sink.flush(i);
              });
  return y;
}

// The checks of scaled_dot_product_attention.
void check_bhtd(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                const ScaledDotProductAttentionOptions& options) {
  for (const auto& [x, name] : {std::pair{&q, "q"}, std::pair{&k, "k"}, std::pair{&v, "v"}}) {
    checks::floating(op, *x, name);
    checks::same_kind(op, q, *x);
    if (x->rank() != 4)
      fail<ShapeError>("{}: {} has shape {} ([batch, heads, time, head_size])", op, name,
                       to_string(x->shape()));
  }
  if (k.shape() != v.shape())
    fail<ShapeError>("{}: k and v differ: {} and {} (equal shapes)", op, to_string(k.shape()),
                     to_string(v.shape()));
  if (q.dim(0) != k.dim(0) || q.dim(3) != k.dim(3))
    fail<ShapeError>(
        "{}: q has shape {} and k {} (one batch and one head_size: [batch, heads, time, head_size])", op,
        to_string(q.shape()), to_string(k.shape()));
  const std::int64_t heads = q.dim(1), kv_heads = k.dim(1);
  if (heads != kv_heads && (!options.enable_gqa || kv_heads == 0 || heads % kv_heads != 0))
    fail<ShapeError>(
        "{}: q {} has {} heads and k {} has {} (axis 1 of [batch, heads, time, head_size]: equal, or with "
        "enable_gqa a divisor; attention_bthd takes [batch, time, heads, head_size])",
        op, to_string(q.shape()), heads, to_string(k.shape()), kv_heads);
  if (!(options.dropout_p >= 0 && options.dropout_p < 1))
    fail<ValueError>("{}: dropout_p {} (at least 0 and below 1)", op, options.dropout_p);
  if (options.scale && !(std::isfinite(*options.scale) && *options.scale != 0))
    fail<ValueError>("{}: scale {} (finite and not 0)", op, *options.scale);
  const Tensor& mask = options.attn_mask;
  if (!mask.defined()) return;
  if (options.is_causal) fail<ValueError>("{}: attn_mask and is_causal (one of them)", op);
  if (mask.dtype() != Dtype::u8 && mask.dtype() != q.dtype())
    fail<DtypeError>("{}: attn_mask is {} and q {} (u8: 1 = takes part; or q's dtype: added to the scores)",
                     op, dtype_name(mask.dtype()), dtype_name(q.dtype()));
  if (mask.device() != q.device())
    fail<DeviceError>("{}: q on {} and attn_mask on {} (one device for all; nothing is copied silently)", op,
                      to_string(q.device()), to_string(mask.device()));
  const Shape scores{q.dim(0), heads, q.dim(2), k.dim(2)};
  bool fits = mask.rank() <= 4;
  for (int axis = 1; fits && axis <= mask.rank(); ++axis)
    fits = mask.dim(-axis) == 1 || mask.dim(-axis) == scores[4 - axis];
  if (!fits)
    fail<ShapeError>("{}: attn_mask {} does not broadcast to {} ([batch, heads, queries, keys])", op,
                     to_string(mask.shape()), to_string(scores));
}

// scaled_dot_product_attention with a mask, as two products and a softmax.
Tensor masked_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        const ScaledDotProductAttentionOptions& options) {
  const Tensor& mask = options.attn_mask;
  const std::int64_t batch = q.dim(0), heads = q.dim(1), kv_heads = k.dim(1), keys = k.dim(2),
                     size = q.dim(3);
  const auto for_each_head = [&](const Tensor& x) {
    if (heads == kv_heads) return x;
    const Tensor shared = expand(unsqueeze(x, 2), {batch, kv_heads, heads / kv_heads, keys, size});
    return reshape(shared, Shape{batch, heads, keys, size});
  };
  SoftmaxOptions visible;
  (mask.dtype() == Dtype::u8 ? visible.mask : visible.bias) = mask;
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(size)));
  const Tensor probabilities = softmax(matmul(q, transpose(for_each_head(k), 2, 3)) * scale, visible);
  name_value("probabilities", probabilities);
  const Tensor dropped = dropout(probabilities, options.dropout_p, options.dropout_key.value_or(RandomKey{}));
  return matmul(dropped, for_each_head(v));
}

}  // namespace

std::int64_t detail::attention_workspace(const AttentionArgs& args, const AttentionBackwardArgs* gradient,
                                         const Device& device) {
  if (!uses_cpu_path(device)) return gradient == nullptr ? 0 : attention_partials(*gradient).elements;
  return attention_shared(args, gradient).elements +
         args.threads * attention_scratch(args.head_size).elements;
}

Tensor attention_bthd(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& given) {
  const AttentionOptions options = is_bf16(q) ? detail::with_upcast_tables(given) : given;
  if (must_upcast(q))
    return downcast(attention_bthd(upcast(q), upcast_like("attention_bthd", q, k),
                                   upcast_like("attention_bthd", q, v),
                                   detail::with_wide_past("attention_bthd", q, options)));
  // The CPU's kernels do not differentiate through the scaling.
  if (options.unit_eps && q.defined() && uses_cpu_path(q.device()))
    return attention_bthd(unit_norm(q, *options.unit_eps), unit_norm(k, *options.unit_eps), v,
                          detail::without_unit(options));
  if (q.defined() && !detail::attention_reads_past(q.device()))
    if (const auto joined = detail::concat_past("attention_bthd", k, v, options))
      return attention_bthd(q, joined->k, joined->v, joined->options);
  if (!q.defined()) checks::floating("attention_bthd", q, "q");
  return mix(
      kSeparate,
      {q, k, v, options.head_scale, options.bias, options.positions, options.past_keys, options.past_values},
      0, q.shape(), options);
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const ScaledDotProductAttentionOptions& given) {
  const char* const op = "scaled_dot_product_attention";
  ScaledDotProductAttentionOptions options = given;
  const bool masked = options.attn_mask.defined();
  if (masked ? is_bf16(q) : must_upcast(q)) {  // the parts of the masked form would round one after the other
    options.attn_mask = upcast(options.attn_mask);
    return downcast(
        scaled_dot_product_attention(upcast(q), upcast_like(op, q, k), upcast_like(op, q, v), options));
  }
  check_bhtd(op, q, k, v, options);
  if (options.dropout_p > 0 && !options.dropout_key) options.dropout_key = detail::next_call_key(op);
  if (!options.dropout_key) options.dropout_p = 0;
  if (masked) return masked_attention(q, k, v, options);
  AttentionOptions plain;
  if (options.is_causal) plain.band.least = k.dim(2) - q.dim(2);
  plain.scale = options.scale.value_or(0);
  plain.dropout = options.dropout_p;
  plain.dropout_key = options.dropout_key.value_or(RandomKey{});
  const Tensor y = attention_bthd(transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1, 2), plain);
  return transpose(y, 1, 2);
}

Tensor attention_packed(const Tensor& qkv, std::int64_t heads, const AttentionOptions& given,
                        const Tensor& past) {
  const AttentionOptions options = is_bf16(qkv) ? detail::with_upcast_tables(given) : given;
  if (must_upcast(qkv))
    return downcast(
        attention_packed(upcast(qkv), heads, options, upcast_like("attention_packed", qkv, past)));
  checks::floating("attention_packed", qkv, "qkv");
  if (qkv.rank() != 3)
    fail<ShapeError>("attention_packed: qkv has shape {} ([batch, time, 3 dim])", to_string(qkv.shape()));
  if (heads < 1) fail<ValueError>("attention_packed: heads {} (at least 1)", heads);
  if (has_past(options))
    fail<ValueError>(
        "attention_packed: options.past_keys or past_values (give keys and values side by side as past)");
  refuse_unit("attention_packed", options);
  if (qkv.dim(2) % (3 * heads) != 0)
    fail<ShapeError>(
        "attention_packed: 3 heads must divide the width: width {}, heads {} (columns q, k, v of dim each)",
        qkv.dim(2), heads);
  const Shape shape{qkv.dim(0), qkv.dim(1), qkv.dim(2) / 3};
  if (past.defined()) check_packed_rows("attention_packed", qkv, "past", past, shape);
  if (past.defined() && !detail::attention_reads_past(qkv.device())) {
    const std::int64_t dim = shape[2];
    const std::vector<Tensor> own = split(qkv, 2, {dim, dim, dim}), before = split(past, 2, {dim, dim});
    AttentionOptions joined = options;
    joined.past_keys = by_head(before[0], heads);
    joined.past_values = by_head(before[1], heads);
    return reshape(
        attention_bthd(by_head(own[0], heads), by_head(own[1], heads), by_head(own[2], heads), joined),
        shape);
  }
  return mix(kPacked, {qkv, options.head_scale, options.bias, options.positions, past}, heads, shape,
             options);
}

Tensor attention_packed_keys(const Tensor& q, const Tensor& past, const Tensor& own, std::int64_t heads,
                             const AttentionOptions& options) {
  const char* const op = "attention_packed_keys";
  if (must_upcast(q))
    return downcast(
        attention_packed_keys(upcast(q), upcast_like(op, q, past), upcast_like(op, q, own), heads, options));
  detail::check_packed_keys(op, q, past, own, heads);
  if (has_past(options) || options.head_scale.defined() || options.bias.defined() ||
      options.positions.defined())
    fail<ValueError>(
        "{}: options with tensors, which are for attention_bthd (band, scale and dropout are taken)", op);
  refuse_unit(op, options);
  detail::check_numbers(op, options);
  if (detail::is_window(q, past, own, heads, options))
    return detail::window_attention(q, past, own, heads, options);
  const bool narrow =
      uses_cpu_path(q.device()) &&
      attention_has_narrow_heads(q.dtype(), q.dim(1), own.dim(1) + (past.defined() ? past.dim(1) : 0),
                                 q.dim(2) / heads, coarsest(options.precision, q, past, own));
  if (!detail::attention_reads_past(q.device()) && !narrow) {
    const std::int64_t dim = q.dim(2);
    const std::vector<Tensor> parts = split(past.defined() ? concat({past, own}, 1) : own, 2, {dim, dim});
    return reshape(
        attention_bthd(by_head(q, heads), by_head(parts[0], heads), by_head(parts[1], heads), options),
        q.shape());
  }
  return mix(kPackedKeys, {q, past, own}, heads, q.shape(), options);
}

}  // namespace eddy
