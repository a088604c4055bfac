// Samples and references of the ops in window_attention.h.
#include <algorithm>
#include <cmath>

#include "ops/attention/window_attention.h"
#include "ops/core/op_spec.h"

namespace eddy {
namespace {

// Two heads; inputs q, own and, if there is one, past.
constexpr std::int64_t kHeads = 2;

Tensors reference(const Tensors& inputs, double rate, const RandomKey& key) {
  const Tensor &q = inputs[0], &own = inputs[1];
  const std::int64_t batch = q.dim(0), queries = q.dim(1), dim = q.dim(2), d = dim / kHeads;
  const std::int64_t before = inputs.size() > 2 ? inputs[2].dim(1) : 0, keys = before + own.dim(1);
  const auto values = [](const Tensor& x) { return x.to_vector<double>(); };
  const std::vector<double> vq = values(q), vo = values(own),
                            vp = before > 0 ? values(inputs[2]) : std::vector<double>();
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto row = [&](std::int64_t b, std::int64_t t) {
    return t < before ? vp.data() + (b * before + t) * 2 * dim
                      : vo.data() + (b * (keys - before) + t - before) * 2 * dim;
  };
  std::vector<double> y(vq.size(), 0.0);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t j = 0; j < queries; ++j) {
        const std::int64_t sees = keys - queries + j + 1, place = (b * queries + j) * dim + h * d;
        std::vector<double> weight(at(sees));
        double total = 0;
        for (std::int64_t t = 0; t < sees; ++t) {
          double score = 0;
          for (std::int64_t c = 0; c < d; ++c) score += vq[at(place + c)] * row(b, t)[h * d + c];
          weight[at(t)] = score / std::sqrt(static_cast<double>(d));
        }
        const double most = *std::max_element(weight.begin(), weight.end());
        for (double& w : weight) {
          w = std::exp(w - most);
          total += w;
        }
        for (std::int64_t t = 0; t < sees; ++t) {
          const std::int64_t number = ((b * kHeads + h) * queries + j) * keys + t;
          const bool kept = rate == 0 || static_cast<double>(
                                             uniform01(key.word(static_cast<std::uint64_t>(number)))) >= rate;
          const double share = kept ? weight[at(t)] / total / (1 - rate) : 0;
          for (std::int64_t c = 0; c < d; ++c) y[at(place + c)] += share * row(b, t)[dim + h * d + c];
        }
      }
  return {Tensor::from(y, q.shape())};
}

OpSpec window_spec(const char* name, double rate) {
  const RandomKey key = random_key(5, "window sample", 2);
  OpSpec spec{name, "softmax(q k^T / sqrt(d)) v over the rows before a block and its own"};
  spec.run = [rate, key](const Tensors& x) {
    WindowAttentionOptions options;
    options.heads = kHeads;
    options.dropout = rate;
    options.dropout_key = key;
    return window_attention(x[0], optional_input(x, 2), x[1], options);
  };
  spec.reference = [rate, key](const Tensors& x) { return reference(x, rate, key); };
  const auto inputs = [](std::int64_t batch, std::int64_t queries, std::int64_t own, std::int64_t past,
                         std::int64_t dim, double scale = 1) {
    Tensors x{sample_normal({batch, queries, dim}, "q", scale),
              sample_normal({batch, own, 2 * dim}, "own", scale)};
    if (past > 0) x.push_back(sample_normal({batch, past, 2 * dim}, "past", scale));
    return x;
  };
  spec.samples = {{"size_1", inputs(4, 1, 1, 0, 2)},
                  {"odd_tail", inputs(5, 3, 3, 2, 6)},
                  {"no_past", inputs(4, 5, 5, 0, 4)},
                  {"fewer_queries", inputs(4, 2, 5, 3, 4)},
                  {"two_groups", inputs(17, 2, 2, 3, 4)},
                  {"wide_heads", inputs(4, 2, 2, 1, 38)},
                  {"strided",
                   {strided_copy(inputs(4, 3, 3, 2, 4)[0]), strided_copy(inputs(4, 3, 3, 2, 4)[1]),
                    raw::transpose(sample_normal({2, 4, 8}, "past"), 0, 1)}},
                  // Saturated: the gradients are rounding errors.
                  {"large", inputs(4, 3, 3, 2, 4, 30), false},
                  // Passed to attention.
                  {"size_0", inputs(4, 0, 3, 0, 4)},
                  {"small_batch", inputs(2, 3, 3, 2, 4)}};
  spec.roundings = 64;
  spec.bench = [] {
    return Tensors{sample_normal({256, 32, 32}, "q"), sample_normal({256, 32, 64}, "own"),
                   sample_normal({256, 32, 64}, "past")};
  };
  return spec;
}

}  // namespace

std::vector<OpSpec> window_attention_specs() {
  // Factors 0 and 2: with one key a gradient of 0 stays exactly 0.
  return {window_spec("window_attention", 0), window_spec("window_attention_dropout", 0.5)};
}

}  // namespace eddy
