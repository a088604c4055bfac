// Attention as two products with a softmax between them, in f64 and with all probabilities in memory: the
// form to read first, and the reference of the blocked kernels, with which it shares nothing but the
// checks. Its gradients are those of the ops that it consists of.
#include <algorithm>

#include "autograd/named_values.h"
#include "ops/attention/attention.h"
#include "ops/cast/upcast.h"
#include "ops/index/gather.h"
#include "ops/norm/unit_norm.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/matmul.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

Tensor exact(const Tensor& x) {
  return cast(x, Dtype::f64);
}

// Returns y[b, h, j, t] = x[b, h, j, distance of query j and key t].
Tensor by_distance(const Tensor& x, std::int64_t keys) {
  const std::int64_t queries = x.dim(2), distances = x.dim(3);
  std::vector<std::int64_t> index;
  for (std::int64_t j = 0; j < queries; ++j)
    for (std::int64_t t = 0; t < keys; ++t)  // hidden pairs may take any entry
      index.push_back(std::clamp<std::int64_t>(j + keys - queries - t, 0, distances - 1));
  return gather(x, 3, raw::expand(Tensor::from(index, {queries, keys}), x.shape().with(3, keys)));
}

// x [batch, rows, own, size] in f64 as [batch, heads, rows, size]; several heads may share one of x.
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  const std::int64_t batch = x.dim(0), rows = x.dim(1), own = x.dim(2), size = x.dim(3);
  const std::int64_t sharing = own == 0 ? 0 : heads / own;
  const Tensor one = reshape(transpose(exact(x), 1, 2), {batch, own, 1, rows, size});
  return reshape(expand(one, {batch, own, sharing, rows, size}), {batch, heads, rows, size});
}

// The probabilities [batch, heads, queries, keys] in f64, before dropout. The inputs are checked, without a past.
Tensor probabilities_of(const Tensor& q, const Tensor& k, const AttentionOptions& options) {
  const std::int64_t batch = q.dim(0), heads = q.dim(2), keys = k.dim(1);
  const Tensor queries = split_heads(q, heads);
  Tensor scores = matmul(queries, transpose(split_heads(k, heads), 2, 3));
  if (options.positions.defined())
    scores += by_distance(matmul(queries, transpose(exact(options.positions), 0, 1)), keys);
  if (options.bias.defined()) {
    const std::int64_t distances = options.bias.dim(1);
    const Tensor bias = reshape(exact(options.bias), {heads, 1, distances});
    scores += by_distance(expand(bias, {batch, heads, q.dim(1), distances}), keys);
  }
  if (options.head_scale.defined()) scores *= reshape(exact(options.head_scale), {heads, 1, 1});
  return softmax(scores * detail::attention_scale(options, q.dim(3)), {options.causal, options.band});
}

}  // namespace

Tensor detail::attention_probabilities(const Tensor& q, const Tensor& k, const AttentionOptions& given) {
  const auto here = [](const Tensor& x) { return x.defined() ? raw::to_device(exact(x), kCpu) : x; };
  AttentionOptions options = given;
  for (Tensor* table : {&options.head_scale, &options.bias, &options.positions}) *table = here(*table);
  Tensor queries = here(q), keys = here(k);
  if (options.unit_eps) {
    queries = unit_norm(queries, *options.unit_eps);
    keys = unit_norm(keys, *options.unit_eps);
  }
  if (options.past_keys.defined()) keys = concat({here(options.past_keys), keys}, 1);
  return cast(probabilities_of(queries, keys, options), is_bf16(q) ? Dtype::f32 : q.dtype());
}

Tensor detail::attention_bthd_composed(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options) {
  const char* const op = "attention_bthd_composed";
  if (is_bf16(q))
    return downcast(
        attention_bthd_composed(upcast(q), upcast_like(op, q, k), upcast_like(op, q, v),
                                detail::with_wide_past(op, q, detail::with_upcast_tables(options))));
  if (options.unit_eps)
    return attention_bthd_composed(unit_norm(q, *options.unit_eps), unit_norm(k, *options.unit_eps), v,
                                   detail::without_unit(options));
  if (const auto joined = detail::concat_past(op, k, v, options))
    return attention_bthd_composed(q, joined->k, joined->v, joined->options);
  detail::check_attention(op, q, k, v, options);
  if (q.device() != kCpu)
    fail<DeviceError>("attention_bthd_composed: {} (cpu only; use attention_bthd)", to_string(q.device()));

  const Tensor probabilities = probabilities_of(q, k, options);
  name_value("probabilities", [&] { return cast(probabilities, q.dtype()); });
  const Tensor mixed =
      matmul(dropout(probabilities, options.dropout, options.dropout_key), split_heads(v, q.dim(2)));
  return cast(contiguous(transpose(mixed, 1, 2)), q.dtype());
}

}  // namespace eddy
