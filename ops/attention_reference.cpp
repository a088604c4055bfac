// Attention from plain loops that store every probability: what the blocked kernels are compared with. Sums
// are f64 for both dtypes, dropout words are drawn one at a time, and nothing is shared with the kernels.
#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/attention.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "tensor/format.h"

namespace eddy {
namespace {

// The sizes, and the numbers of elements in contiguous tensors.
struct Sizes {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;

  Sizes(const Tensor& q, const Tensor& k)
      : batch(q.dim(0)),
        queries(q.dim(1)),
        keys(k.dim(1)),
        heads(q.dim(2)),
        kv_heads(k.dim(2)),
        head_size(q.dim(3)) {}
  std::int64_t q_at(std::int64_t b, std::int64_t j, std::int64_t h) const {
    return ((b * queries + j) * heads + h) * head_size;
  }
  std::int64_t kv_at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return ((b * keys + t) * kv_heads + h / (heads / kv_heads)) * head_size;
  }
  std::int64_t p_at(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return ((b * heads + h) * queries + j) * keys;
  }
  // Calls body(b, h, j, keys that query j sees) for every row of probabilities.
  template <class Body>
  void each_row(bool causal, Body&& body) const {
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t j = 0; j < queries; ++j) {
          std::int64_t sees = keys;
          if (causal) sees = std::min(keys, std::max<std::int64_t>(0, j + (keys - queries) + 1));
          body(b, h, j, sees);
        }
  }
};

template <class T>
double dot(const T* a, const T* b, std::int64_t size) {
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// 0 or 1 / (1 - dropout).
double keep_factor(const AttentionOptions& options, std::int64_t element) {
  if (options.dropout == 0) return 1;
  const std::uint32_t word = options.dropout_key.word(static_cast<std::uint64_t>(element));
  return static_cast<double>(uniform01(word)) >= options.dropout ? 1 / (1 - options.dropout) : 0;
}

// y += a x, in f64 sums.
template <class T>
void add_scaled(double* y, double a, const T* x, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) y[i] += a * static_cast<double>(x[i]);
}

template <class T>
void mix(const Sizes& n, const AttentionOptions& options, const Tensor& q, const Tensor& k, const Tensor& v,
         const Tensor& probabilities, const Tensor& output) {
  const double scale = detail::attention_scale(options, n.head_size);
  n.each_row(options.causal, [&](std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t sees) {
    T* const p = probabilities.data<T>() + n.p_at(b, h, j);
    std::vector<double> scores(static_cast<std::size_t>(sees)), y(static_cast<std::size_t>(n.head_size), 0.0);
    double maximum = -INFINITY, sum = 0;
    for (std::int64_t t = 0; t < sees; ++t) {
      double& score = scores[static_cast<std::size_t>(t)];
      score = scale * dot(q.data<T>() + n.q_at(b, j, h), k.data<T>() + n.kv_at(b, t, h), n.head_size);
      maximum = std::max(maximum, score);
    }
    for (double& score : scores) sum += (score = std::exp(score - maximum));
    for (std::int64_t t = 0; t < n.keys; ++t) {
      p[t] = t < sees ? static_cast<T>(scores[static_cast<std::size_t>(t)] / sum) : T(0);
      if (t < sees)
        add_scaled(y.data(), keep_factor(options, n.p_at(b, h, j) + t) * static_cast<double>(p[t]),
                   v.data<T>() + n.kv_at(b, t, h), n.head_size);
    }
    for (std::int64_t i = 0; i < n.head_size; ++i)
      output.data<T>()[n.q_at(b, j, h) + i] = static_cast<T>(y[static_cast<std::size_t>(i)]);
  });
}

// With m the dropout factors: dp = m (dy . v), ds = scale p (dp - sum(p dp)); dq = ds k, dk = ds q, dv = m p
// dy.
template <class T>
void unmix(const Sizes& n, const AttentionOptions& options, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& probabilities, const Tensor& dy, const Tensor& dq, const Tensor& dk,
           const Tensor& dv) {
  const double scale = detail::attention_scale(options, n.head_size);
  std::vector<double> sum_q(static_cast<std::size_t>(q.elements())),
      sum_k(static_cast<std::size_t>(k.elements())), sum_v(static_cast<std::size_t>(v.elements())),
      dp(static_cast<std::size_t>(n.keys));
  n.each_row(options.causal, [&](std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t sees) {
    const T* const p = probabilities.data<T>() + n.p_at(b, h, j);
    const std::int64_t row = n.q_at(b, j, h);
    double mean = 0;
    for (std::int64_t t = 0; t < sees; ++t) {
      const double keep = keep_factor(options, n.p_at(b, h, j) + t), probability = static_cast<double>(p[t]);
      const std::int64_t key = n.kv_at(b, t, h);
      dp[static_cast<std::size_t>(t)] = keep * dot(dy.data<T>() + row, v.data<T>() + key, n.head_size);
      mean += probability * dp[static_cast<std::size_t>(t)];
      add_scaled(sum_v.data() + key, keep * probability, dy.data<T>() + row, n.head_size);
    }
    for (std::int64_t t = 0; t < sees; ++t) {
      const double ds = scale * static_cast<double>(p[t]) * (dp[static_cast<std::size_t>(t)] - mean);
      const std::int64_t key = n.kv_at(b, t, h);
      add_scaled(sum_q.data() + row, ds, k.data<T>() + key, n.head_size);
      add_scaled(sum_k.data() + key, ds, q.data<T>() + row, n.head_size);
    }
  });
  const auto write = [](const Tensor& to, const std::vector<double>& sums) {
    for (std::size_t i = 0; i < sums.size(); ++i) to.data<T>()[i] = static_cast<T>(sums[i]);
  };
  write(dq, sum_q);
  write(dk, sum_k);
  write(dv, sum_v);
}

}  // namespace

Tensor attention_composed(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options) {
  detail::check_attention("attention_composed", q, k, v, options);
  if (!(q.device() == kCpu))
    fail<DeviceError>("attention_composed: {} (cpu only; use attention)", to_string(q.device()));
  const Tensor q_rows = raw::contiguous(q), k_rows = raw::contiguous(k), v_rows = raw::contiguous(v);
  const Sizes n(q, k);
  const Tensor output = Tensor::zeros(q.shape(), q.dtype());
  const Tensor probabilities = Tensor::empty({n.batch, n.heads, n.queries, n.keys}, q.dtype());
  const auto mix_of = q.dtype() == Dtype::f32 ? mix<float> : mix<double>;
  if (output.elements() > 0) mix_of(n, options, q_rows, k_rows, v_rows, probabilities, output);
  return record("attention_composed", {q, k, v}, output, {q_rows, k_rows, v_rows, probabilities},
                [options, n](VjpContext& context) {
                  Tensor gradient[3];
                  for (int i = 0; i < 3; ++i)
                    gradient[i] = Tensor::zeros(context.saved(i).shape(), context.saved(i).dtype());
                  const auto unmix_of = context.saved(0).dtype() == Dtype::f32 ? unmix<float> : unmix<double>;
                  if (gradient[0].elements() > 0)
                    unmix_of(n, options, context.saved(0), context.saved(1), context.saved(2),
                             context.saved(3), raw::contiguous(context.dy()), gradient[0], gradient[1],
                             gradient[2]);
                  for (int i = 0; i < 3; ++i)
                    if (context.sink.needs(i)) context.sink.give(i, gradient[i]);
                });
}

namespace {

Tensors sample(const char* stream, const Shape& q, const Shape& k, double scale = 1) {
  const std::string name = stream;
  return {sample_normal(q, (name + ".q").c_str(), scale), sample_normal(k, (name + ".k").c_str(), scale),
          sample_normal(k, (name + ".v").c_str(), scale)};
}

// q, k and v as slices of one [batch, time, 3 dim] tensor.
Tensors packed_slices(const Tensor& qkv, std::int64_t heads) {
  const std::int64_t dim = qkv.dim(2) / 3;
  Tensors parts;
  for (int i = 0; i < 3; ++i)
    parts.push_back(
        raw::reshape(raw::narrow(qkv, 2, i * dim, dim), {qkv.dim(0), qkv.dim(1), heads, dim / heads}));
  return parts;
}

OpSpec separate_spec(const char* name, const char* formula, const AttentionOptions& options) {
  OpSpec spec;
  spec.name = name;
  spec.formula = formula;
  spec.run = [options](const Tensors& x) { return Tensors{attention(x[0], x[1], x[2], options)}; };
  spec.reference = [options](const Tensors& x) {
    return Tensors{attention_composed(x[0], x[1], x[2], options)};
  };
  spec.samples = {
      {"size_0_batch", sample("b0", {0, 3, 2, 4}, {0, 3, 2, 4})},
      {"size_0_queries", sample("q0", {1, 0, 2, 4}, {1, 3, 2, 4})},
      {"size_0_keys", sample("k0", {1, 3, 2, 4}, {1, 0, 2, 4})},
      {"size_1", sample("one", {1, 1, 1, 1}, {1, 1, 1, 1})},
      {"one_query", sample("decode", {2, 1, 4, 16}, {2, 37, 2, 16})},
      {"odd_tail", sample("odd", {2, 7, 3, 5}, {2, 7, 3, 5})},
      {"fewer_queries", sample("fewer", {1, 5, 2, 3}, {1, 19, 2, 3})},
      {"more_queries", sample("more", {1, 9, 2, 3}, {1, 4, 2, 3})},
      {"two_query_tiles", sample("tiles", {1, 65, 1, 3}, {1, 65, 1, 3})},
      {"two_key_tiles", sample("long", {1, 9, 2, 2}, {1, 300, 1, 2})},
      {"grouped_heads", sample("grouped", {2, 6, 6, 4}, {2, 6, 2, 4})},
      {"packed_slices", packed_slices(sample_normal({2, 8, 3 * 12}, "slices"), 3)},
      {"strided",
       {strided_copy(sample_normal({1, 6, 2, 4}, "sq")), strided_copy(sample_normal({1, 6, 2, 4}, "sk")),
        strided_copy(sample_normal({1, 6, 2, 4}, "sv"))}},
      {"large", sample("large", {1, 6, 2, 4}, {1, 6, 2, 4}, 30), false}};
  // A score of size 30 * 30 * 2 keeps its rounding through exp, so the error is that of the score and not of
  // its exp.
  spec.roundings = 64;
  spec.bench = [] {
    const Tensor qkv = raw::cast(sample_normal({16, 256, 3 * 384}, "bench"), Dtype::f32);
    return packed_slices(qkv, 6);
  };
  spec.cost = [options](const Tensors& x) {
    const double pairs =
        static_cast<double>(x[0].dim(1)) *
        (options.causal ? (static_cast<double>(x[1].dim(1)) + 1) / 2 : static_cast<double>(x[1].dim(1)));
    return OpCost{4 * pairs * static_cast<double>(x[0].dim(0) * x[0].dim(2) * x[0].dim(3)),
                  static_cast<double>(2 * x[0].bytes() + x[1].bytes() + x[2].bytes())};
  };
  return spec;
}

OpSpec packed_spec() {
  OpSpec spec;
  spec.name = "attention_packed";
  spec.formula = "attention of the three parts of [q k v], causal, 3 heads";
  AttentionOptions options;
  options.causal = true;
  spec.run = [options](const Tensors& x) { return Tensors{attention_packed(x[0], 3, options)}; };
  spec.reference = [options](const Tensors& x) {
    const Tensors parts = packed_slices(raw::contiguous(x[0]), 3);
    const Tensor y = attention_composed(parts[0], parts[1], parts[2], options);
    return Tensors{raw::reshape(y, {y.dim(0), y.dim(1), y.dim(2) * y.dim(3)})};
  };
  spec.samples = {{"size_0", {sample_normal({2, 0, 18}, "p0")}},
                  {"size_1", {sample_normal({1, 1, 9}, "p1")}},
                  {"odd_tail", {sample_normal({2, 11, 45}, "p2")}},
                  {"strided", {strided_copy(sample_normal({2, 5, 18}, "p3"))}}};
  spec.roundings = 32;
  spec.bench = [] { return Tensors{raw::cast(sample_normal({16, 256, 3 * 384}, "bench"), Dtype::f32)}; };
  spec.cost = [](const Tensors& x) {
    const double time = static_cast<double>(x[0].dim(1)), dim = static_cast<double>(x[0].dim(2)) / 3;
    return OpCost{4 * static_cast<double>(x[0].dim(0)) * dim * time * (time + 1) / 2,
                  static_cast<double>(x[0].bytes()) * 4 / 3};
  };
  return spec;
}

}  // namespace

std::vector<OpSpec> attention_specs() {
  AttentionOptions causal, dropped;
  causal.causal = dropped.causal = true;
  dropped.dropout = 0.3;
  dropped.scale = 0.4;
  dropped.dropout_key = random_key(11, "attention_specs", 2);
  return {separate_spec("attention", "softmax(q k^T / sqrt(d)) v", {}),
          separate_spec("attention_causal", "the same, query j sees keys <= j + keys - queries", causal),
          separate_spec("attention_dropout", "the same with dropout on the probabilities", dropped),
          packed_spec()};
}

}  // namespace eddy
