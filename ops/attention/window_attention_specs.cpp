// Samples and references of attention_packed_keys in short windows.
#include "ops/attention/attention.h"
#include "ops/core/op_spec.h"

namespace eddy {
namespace {

// Two heads; inputs q, own and, if there is one, past.
constexpr std::int64_t kHeads = 2;

// Columns `first` .. first + dim - 1 by head.
Tensor by_head(const Tensor& x, std::int64_t first, std::int64_t dim) {
  return raw::reshape(raw::narrow(x, 2, first, dim), {x.dim(0), x.dim(1), kHeads, dim / kHeads});
}

Tensor reference(const Tensors& x, double rate, const RandomKey& key) {
  const std::int64_t dim = x[0].dim(2);
  AttentionOptions options;
  options.causal = true;
  options.dropout = rate;
  options.dropout_key = key;
  if (x.size() > 2) {
    options.past_keys = by_head(x[2], 0, dim);
    options.past_values = by_head(x[2], dim, dim);
  }
  const Tensor y = detail::attention_bthd_composed(by_head(x[0], 0, dim), by_head(x[1], 0, dim),
                                                   by_head(x[1], dim, dim), options);
  return raw::reshape(y, x[0].shape());
}

OpSpec packed_keys_spec(const char* name, double rate) {
  const RandomKey key = random_key(5, "window sample", 2);
  OpSpec spec{name, "softmax(q k^T / sqrt(d)) v over the rows before a block and its own"};
  spec.run = [rate, key](const Tensors& x) {
    AttentionOptions options;
    options.causal = true;
    options.dropout = rate;
    options.dropout_key = key;
    return attention_packed_keys(x[0], optional_input(x, 2), x[1], kHeads, options);
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
                  // For the kernels of attention.
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
  return {packed_keys_spec("attention_packed_keys", 0),
          packed_keys_spec("attention_packed_keys_dropout", 0.5)};
}

}  // namespace eddy
