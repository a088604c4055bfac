// Attention from plain loops that store every probability: the reference for the blocked kernels. Sums are
// f64 for both dtypes, visibility is checked pair by pair, dropout words are drawn one at a time, and nothing
// is shared with the kernels.
#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/cast/widen.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

using Doubles = std::vector<double>;

Doubles doubles(const Tensor& x) {
  return x.defined() ? raw::cast(raw::contiguous(x), Dtype::f64).to_vector<double>() : Doubles();
}

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// One call: sizes, and the inputs as contiguous f64.
struct Attended {
  const AttentionOptions& options;
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
  std::int64_t distances = 0;  // columns of bias
  double scale;
  Doubles q, k, v, head_scale, bias, positions;

  Attended(const Tensor& queries_in, const Tensor& keys_in, const Tensor& values_in,
           const AttentionOptions& given)
      : options(given),
        batch(queries_in.dim(0)),
        queries(queries_in.dim(1)),
        keys(keys_in.dim(1)),
        heads(queries_in.dim(2)),
        kv_heads(keys_in.dim(2)),
        head_size(queries_in.dim(3)),
        scale(detail::attention_scale(given, queries_in.dim(3))),
        q(doubles(queries_in)),
        k(doubles(keys_in)),
        v(doubles(values_in)),
        head_scale(doubles(given.head_scale)),
        bias(doubles(given.bias)),
        positions(doubles(given.positions)) {
    if (given.bias.defined()) distances = given.bias.dim(1);
  }

  // Where rows start.
  std::int64_t q_at(std::int64_t b, std::int64_t j, std::int64_t h) const {
    return ((b * queries + j) * heads + h) * head_size;
  }
  std::int64_t kv_at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return ((b * keys + t) * kv_heads + h / (heads / kv_heads)) * head_size;
  }
  std::int64_t p_at(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return ((b * heads + h) * queries + j) * keys;
  }
  std::int64_t distance(std::int64_t j, std::int64_t t) const { return j + (keys - queries) - t; }
  bool sees(std::int64_t j, std::int64_t t) const {
    const std::int64_t d = distance(j, t);
    return d >= options.band.least && d <= options.band.most && !(options.causal && d < 0);
  }
  double factor(std::int64_t h) const { return scale * (head_scale.empty() ? 1 : head_scale[index(h)]); }
  // The score before any scale.
  double raw_score(std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t t) const {
    const double* const query = q.data() + q_at(b, j, h);
    const double* const key = k.data() + kv_at(b, t, h);
    const double* const position =
        positions.empty() ? nullptr : positions.data() + distance(j, t) * head_size;
    double sum = bias.empty() ? 0 : bias[index(h * distances + distance(j, t))];
    for (std::int64_t i = 0; i < head_size; ++i)
      sum += query[i] * (position == nullptr ? key[i] : key[i] + position[i]);
    return sum;
  }
  // 0 or 1 / (1 - dropout).
  double keep_factor(std::int64_t element) const {
    if (options.dropout == 0) return 1;
    const std::uint32_t word = options.dropout_key.word(static_cast<std::uint64_t>(element));
    return static_cast<double>(uniform01(word)) >= options.dropout ? 1 / (1 - options.dropout) : 0;
  }
  // Calls body(b, h, j) for every row of probabilities.
  template <class Body>
  void each_row(Body&& body) const {
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t j = 0; j < queries; ++j) body(b, h, j);
  }
};

// y += a x.
void add_scaled(double* y, double a, const double* x, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) y[i] += a * x[i];
}

// The attention output; also writes the probabilities, 0 where a query does not see a key.
Doubles mix(const Attended& n, Doubles& probabilities) {
  Doubles output(n.q.size(), 0.0);
  n.each_row([&](std::int64_t b, std::int64_t h, std::int64_t j) {
    double* const p = probabilities.data() + n.p_at(b, h, j);
    double maximum = -INFINITY, sum = 0;
    for (std::int64_t t = 0; t < n.keys; ++t)
      if (n.sees(j, t)) {
        p[t] = n.factor(h) * n.raw_score(b, h, j, t);
        maximum = std::isnan(p[t]) ? p[t] : std::max(maximum, p[t]);
      }
    for (std::int64_t t = 0; t < n.keys; ++t)
      if (n.sees(j, t)) sum += (p[t] = std::exp(p[t] - maximum));
    for (std::int64_t t = 0; t < n.keys; ++t)
      if (n.sees(j, t)) {
        p[t] /= sum;
        add_scaled(output.data() + n.q_at(b, j, h), n.keep_factor(n.p_at(b, h, j) + t) * p[t],
                   n.v.data() + n.kv_at(b, t, h), n.head_size);
      }
  });
  return output;
}

struct Gradients {
  Doubles q, k, v, head_scale, bias, positions;
};

// With m the dropout factors, r the score before scales and s its factor:
//
//   dp     = m (dy . v)
//   dv     = m p dy
//   dscore = p (dp - sum(p dp))
//   ds     = dscore r
//   dr     = s dscore                   also the gradient of bias
//   dq     = dr (k + position)
//   dk     = dr q                       also the gradient of position
Gradients mix_gradients(const Attended& n, const Doubles& probabilities, const Doubles& dy) {
  Gradients g{Doubles(n.q.size(), 0.0),    Doubles(n.k.size(), 0.0),
              Doubles(n.v.size(), 0.0),    Doubles(n.head_scale.size(), 0.0),
              Doubles(n.bias.size(), 0.0), Doubles(n.positions.size(), 0.0)};
  Doubles dp(index(n.keys));
  n.each_row([&](std::int64_t b, std::int64_t h, std::int64_t j) {
    const double* const p = probabilities.data() + n.p_at(b, h, j);
    const std::int64_t row = n.q_at(b, j, h);
    double mean = 0;
    for (std::int64_t t = 0; t < n.keys; ++t) {
      if (!n.sees(j, t)) continue;
      const double keep = n.keep_factor(n.p_at(b, h, j) + t);
      const std::int64_t key = n.kv_at(b, t, h);
      double product = 0;
      for (std::int64_t i = 0; i < n.head_size; ++i) product += dy[index(row + i)] * n.v[index(key + i)];
      dp[index(t)] = keep * product;
      mean += p[t] * dp[index(t)];
      add_scaled(g.v.data() + key, keep * p[t], dy.data() + row, n.head_size);
    }
    for (std::int64_t t = 0; t < n.keys; ++t) {
      if (!n.sees(j, t)) continue;
      const double dscore = p[t] * (dp[index(t)] - mean), dr = n.factor(h) * dscore;
      const std::int64_t key = n.kv_at(b, t, h), d = n.distance(j, t);
      add_scaled(g.q.data() + row, dr, n.k.data() + key, n.head_size);
      add_scaled(g.k.data() + key, dr, n.q.data() + row, n.head_size);
      if (!g.head_scale.empty()) g.head_scale[index(h)] += dscore * n.scale * n.raw_score(b, h, j, t);
      if (!g.bias.empty()) g.bias[index(h * n.distances + d)] += dr;
      if (!g.positions.empty()) {
        add_scaled(g.q.data() + row, dr, n.positions.data() + d * n.head_size, n.head_size);
        add_scaled(g.positions.data() + d * n.head_size, dr, n.q.data() + row, n.head_size);
      }
    }
  });
  return g;
}

}  // namespace

Tensor attention_composed(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options) {
  if (const auto joined = detail::join_past("attention_composed", k, v, options))
    return attention_composed(q, joined->k, joined->v, joined->options);
  if (widens_anywhere(q))
    return narrowed(attention_composed(wide(q), wide_like("attention_composed", q, k),
                                       wide_like("attention_composed", q, v),
                                       detail::with_wide_tables(options)));
  detail::check_attention("attention_composed", q, k, v, options);
  if (!(q.device() == kCpu))
    fail<DeviceError>("attention_composed: {} (cpu only; use attention)", to_string(q.device()));
  Tensor probabilities = Tensor::zeros({q.dim(0), q.dim(2), q.dim(1), k.dim(1)}, Dtype::f64), output;
  {
    const Attended attended(q, k, v, options);
    Doubles p(index(probabilities.elements()), 0.0);
    output = raw::cast(Tensor::from(mix(attended, p), q.shape()), q.dtype());
    std::copy(p.begin(), p.end(), probabilities.mutable_data<double>());
  }
  AttentionOptions plain = options;  // without the tensors: they are saved, not captured
  plain.head_scale = plain.bias = plain.positions = Tensor();
  return record("attention_composed", {q, k, v, options.head_scale, options.bias, options.positions}, output,
                {q, k, v, probabilities, options.head_scale, options.bias, options.positions},
                [plain](VjpContext& context) {
                  AttentionOptions all = plain;
                  all.head_scale = context.saved(4);
                  all.bias = context.saved(5);
                  all.positions = context.saved(6);
                  const Gradients g =
                      mix_gradients(Attended(context.saved(0), context.saved(1), context.saved(2), all),
                                    doubles(context.saved(3)), doubles(context.dy()));
                  const auto give = [&](int input, int saved, const Doubles& gradient) {
                    if (!context.sink.needs(input)) return;
                    const Tensor& x = context.saved(saved);
                    context.sink.give(input, raw::cast(Tensor::from(gradient, x.shape()), x.dtype()));
                  };
                  give(0, 0, g.q);
                  give(1, 1, g.k);
                  give(2, 2, g.v);
                  give(3, 4, g.head_scale);
                  give(4, 5, g.bias);
                  give(5, 6, g.positions);
                });
}

}  // namespace eddy
