// Samples of attention's forms for the generic tests and the benchmark. Every form is compared with
// attention_bthd_composed, scaled_dot_product_attention with plain loops. Samples of several tiles have too many
// elements for finite differences: there the gradients of attention_bthd_composed are the oracle
// (tests/ops/attention/test_attention*.cpp).
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention/attention.h"
#include "ops/core/op_spec.h"

namespace eddy {
namespace {

// The inputs of a form after q, k and v: the keys and values of a past, then tables.
struct Tables {
  bool head_scale = false, bias = false, positions = false, past = false;
};

using Attention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

OpFunction call_of(Attention function, const AttentionOptions& options, const Tables& tables) {
  return [=](const Tensors& x) {
    AttentionOptions completed = options;
    std::size_t next = 3;
    if (tables.past) {
      completed.past_keys = x[next++];
      completed.past_values = x[next++];
    }
    if (tables.head_scale) completed.head_scale = x[next++];
    if (tables.bias) completed.bias = x[next++];
    if (tables.positions) completed.positions = x[next++];
    return function(x[0], x[1], x[2], completed);
  };
}

Tensors sample(const std::string& stream, const Shape& q, const Shape& k, double scale = 1) {
  return {sample_normal(q, (stream + ".q").c_str(), scale), sample_normal(k, (stream + ".k").c_str(), scale),
          sample_normal(k, (stream + ".v").c_str(), scale)};
}

// Parts that are side by side in rows, q, k and v, or k and v: slices of one [batch, time, count dim] tensor.
Tensors packed_slices(const Tensor& rows, std::int64_t heads, int count = 3) {
  const std::int64_t dim = rows.dim(2) / count;
  Tensors parts;
  for (int i = 0; i < count; ++i)
    parts.push_back(
        raw::reshape(raw::narrow(rows, 2, i * dim, dim), {rows.dim(0), rows.dim(1), heads, dim / heads}));
  return parts;
}

// Distances that tables need for given keys.
std::int64_t distances_of(const AttentionOptions& options, std::int64_t keys) {
  return std::min(options.band.most, keys - 1) + 1;
}

// q, k and v with tables that have entries for two distances more than are visible; with a past of so many
// keys.
Tensors with_tables(Tensors x, const AttentionOptions& options, const Tables& tables, std::int64_t past = 0) {
  const std::int64_t heads = x[0].dim(2), head_size = x[0].dim(3);
  const std::int64_t distances = distances_of(options, past + x[1].dim(1)) + 2;
  if (tables.past) {
    const Shape shape = x[1].shape().with(1, past);
    x.push_back(sample_normal(shape, "past.k"));
    x.push_back(sample_normal(shape, "past.v"));
  }
  if (tables.head_scale) x.push_back(sample_normal({heads}, "head_scale"));
  if (tables.bias) x.push_back(sample_normal({heads, distances}, "bias"));
  if (tables.positions) x.push_back(sample_normal({distances, head_size}, "positions"));
  return x;
}

OpSpec spec_of(const char* name, const char* formula, const AttentionOptions& options,
               const Tables& tables = {}) {
  OpSpec spec{name, formula};
  spec.run = call_of(attention_bthd, options, tables);
  spec.reference = call_of(detail::attention_bthd_composed, options, tables);
  // A score of size 30 * 30 * 2 keeps its rounding through exp, so the error is that of the score and not of
  // its exp.
  spec.roundings = 64;
  return spec;
}

OpSpec plain_spec(const char* name, const char* formula, const AttentionOptions& options) {
  OpSpec spec = spec_of(name, formula, options);
  spec.samples = {
      {"size_0_batch", sample("b0", {0, 3, 2, 4}, {0, 3, 2, 4})},
      {"size_0_queries", sample("q0", {1, 0, 2, 4}, {1, 3, 2, 4})},
      {"size_0_keys", sample("k0", {1, 3, 2, 4}, {1, 0, 2, 4})},
      {"size_1", sample("one", {1, 1, 1, 1}, {1, 1, 1, 1})},
      {"one_query", sample("decode", {1, 1, 4, 16}, {1, 13, 2, 16})},
      {"odd_tail", sample("odd", {2, 7, 3, 5}, {2, 7, 3, 5})},
      {"fewer_queries", sample("fewer", {1, 5, 2, 3}, {1, 19, 2, 3})},
      {"more_queries", sample("more", {1, 9, 2, 3}, {1, 4, 2, 3})},
      {"two_query_tiles", sample("tiles", {1, 65, 1, 3}, {1, 65, 1, 3}), false},
      {"two_key_tiles", sample("long", {1, 9, 2, 2}, {1, 300, 1, 2}), false},
      {"grouped_heads", sample("grouped", {2, 6, 6, 4}, {2, 6, 2, 4})},
      {"packed_slices", packed_slices(sample_normal({2, 8, 3 * 12}, "slices"), 3)},
      {"strided",
       {strided_copy(sample_normal({1, 6, 2, 4}, "sq")), strided_copy(sample_normal({1, 6, 2, 4}, "sk")),
        strided_copy(sample_normal({1, 6, 2, 4}, "sv"))}},
      {"large", sample("large", {1, 6, 2, 4}, {1, 6, 2, 4}, 30), false}};
  spec.bench = [] {
    const Tensor qkv = raw::cast(sample_normal({16, 256, 3 * 384}, "bench"), Dtype::f32);
    return packed_slices(qkv, 6);
  };
  return spec;
}

// A form with a band or tables. Benchmark inputs: batch, queries, keys, heads; head_size 64.
OpSpec relative_spec(const char* name, const char* formula, const AttentionOptions& options,
                     const Tables& tables, const Shape& bench = {}) {
  OpSpec spec = spec_of(name, formula, options, tables);
  const auto add = [&](const char* label, Tensors x, bool gradcheck = true) {
    spec.samples.push_back({label, with_tables(std::move(x), options, tables), gradcheck});
  };
  add("size_0_queries", sample("q0", {1, 0, 2, 4}, {1, 3, 2, 4}));
  add("size_0_keys", sample("k0", {1, 3, 2, 4}, {1, 0, 2, 4}));
  add("size_1", sample("one", {1, 1, 1, 1}, {1, 1, 1, 1}));
  add("one_query", sample("decode", {1, 1, 2, 8}, {1, 11, 2, 8}));
  add("odd_tail", sample("odd", {2, 7, 3, 5}, {2, 7, 3, 5}));
  add("cache_and_segment", sample("cached", {2, 12, 2, 3}, {2, 19, 2, 3}));
  add("more_queries", sample("more", {1, 9, 2, 3}, {1, 4, 2, 3}));
  add("two_query_tiles", sample("tiles", {1, 55, 2, 2}, {1, 62, 2, 2}), false);
  add("two_key_tiles", sample("long", {1, 10, 1, 2}, {1, 262, 1, 2}), false);
  add("grouped_heads", sample("grouped", {2, 8, 6, 4}, {2, 9, 2, 4}));
  spec.samples.push_back({"strided", strided_copies(with_tables(sample("strided", {1, 6, 2, 4}, {1, 8, 2, 4}),
                                                                options, tables))});
  add("large", sample("large", {1, 8, 2, 4}, {1, 9, 2, 4}, 30), false);
  if (bench.rank() == 4)
    spec.bench = [=] {
      return with_tables(
          sample("bench", {bench[0], bench[1], bench[3], 64}, {bench[0], bench[2], bench[3], 64}), options,
          tables);
    };
  return spec;
}

// A form with a past. Benchmark inputs: batch, queries, past, heads; head_size 64.
OpSpec past_spec(const char* name, const char* formula, const AttentionOptions& options, Tables tables,
                 const Shape& bench = {}) {
  tables.past = true;
  OpSpec spec = spec_of(name, formula, options, tables);
  const auto inputs = [=](const Shape& q, const Shape& k, std::int64_t past) {
    return with_tables(sample("past", q, k), options, tables, past);
  };
  const auto add = [&](const char* label, const Shape& q, const Shape& k, std::int64_t past,
                       bool gradcheck = true) {
    spec.samples.push_back({label, inputs(q, k, past), gradcheck});
  };
  add("size_0_past", {1, 3, 2, 4}, {1, 3, 2, 4}, 0);
  add("size_0_own", {2, 6, 2, 8}, {2, 0, 2, 8}, 9);
  add("size_0_queries", {1, 0, 2, 4}, {1, 2, 2, 4}, 3);
  add("one_query", {1, 1, 2, 8}, {1, 1, 2, 8}, 5);
  add("past_of_one", {2, 6, 2, 3}, {2, 6, 2, 3}, 1);
  add("odd_tail", {2, 7, 3, 5}, {2, 7, 3, 5}, 3);
  add("longer_past", {1, 6, 2, 4}, {1, 6, 2, 4}, 13);
  add("prefix", {1, 2, 2, 4}, {1, 6, 2, 4}, 3);
  add("more_queries", {1, 9, 2, 3}, {1, 2, 2, 3}, 3);
  add("two_key_tiles", {1, 10, 1, 2}, {1, 131, 1, 2}, 135, false);
  add("grouped_heads", {2, 5, 6, 4}, {2, 5, 2, 4}, 4);
  spec.samples.push_back({"strided", strided_copies(inputs({1, 6, 2, 4}, {1, 6, 2, 4}, 5))});
  if (bench.rank() == 4)
    spec.bench = [=] {
      const Shape own{bench[0], bench[1], bench[3], 64};
      return inputs(own, own, bench[2]);
    };
  return spec;
}

// attention_packed; a second input is the past.
OpSpec packed_spec(const char* name, const char* formula) {
  OpSpec spec{name, formula};
  AttentionOptions options;
  options.causal = true;
  spec.run = [options](const Tensors& x) {
    return attention_packed(x[0], 3, options, x.size() > 1 ? x[1] : Tensor());
  };
  spec.reference = [options](const Tensors& x) {
    AttentionOptions with_past = options;
    const Tensors parts = packed_slices(raw::contiguous(x[0]), 3);
    if (x.size() > 1) {
      const Tensors before = packed_slices(raw::contiguous(x[1]), 3, 2);
      with_past.past_keys = before[0];
      with_past.past_values = before[1];
    }
    const Tensor y = detail::attention_bthd_composed(parts[0], parts[1], parts[2], with_past);
    return raw::reshape(y, {y.dim(0), y.dim(1), y.dim(2) * y.dim(3)});
  };
  spec.samples = {{"size_0", {sample_normal({2, 0, 18}, "p0")}},
                  {"size_1", {sample_normal({1, 1, 9}, "p1")}},
                  {"odd_tail", {sample_normal({2, 11, 45}, "p2")}},
                  {"strided", {strided_copy(sample_normal({2, 5, 18}, "p3"))}}};
  spec.roundings = 32;
  return spec;
}

OpSpec packed_spec() {
  OpSpec spec = packed_spec("attention_packed", "attention of the three parts of [q k v], causal, 3 heads");
  spec.bench = [] { return sample_normal({16, 256, 3 * 384}, "bench"); };
  return spec;
}

OpSpec packed_past_spec() {
  OpSpec spec = packed_spec("attention_packed_past", "the same with a past [k v]");
  const auto sized = [](std::int64_t batch, std::int64_t time, std::int64_t past, std::int64_t dim) {
    return Tensors{sample_normal({batch, time, 3 * dim}, "own"),
                   sample_normal({batch, past, 2 * dim}, "past")};
  };
  spec.samples = {{"size_0_past", sized(1, 3, 0, 6)},
                  {"size_0_queries", sized(1, 0, 4, 6)},
                  {"size_1", sized(1, 1, 1, 3)},
                  {"odd_tail", sized(2, 11, 7, 15)},
                  {"two_key_tiles", sized(1, 70, 61, 6), false},
                  {"strided", strided_copies(sized(2, 5, 4, 6))}};
  return spec;
}

// softmax(q k^T / sqrt(size) + mask) v over [batch, heads, time, size] in plain loops, grouped heads included.
Tensor loops_over_heads(const Tensors& x, bool causal) {
  const std::int64_t batch = x[0].dim(0), heads = x[0].dim(1), queries = x[0].dim(2), size = x[0].dim(3),
                     kv_heads = x[1].dim(1), keys = x[1].dim(2);
  const std::vector<double> q = x[0].to_vector<double>(), k = x[1].to_vector<double>(),
                            v = x[2].to_vector<double>();
  const Tensor mask = optional_input(x, 3);
  const bool allows = mask.defined() && mask.dtype() == Dtype::u8;
  std::vector<double> add;
  if (mask.defined())
    add = raw::cast(raw::expand(mask, {batch, heads, queries, keys}), Dtype::f64).to_vector<double>();
  std::vector<double> y(q.size(), 0.0);
  for (std::int64_t row = 0; row < batch * heads * queries; ++row) {
    const std::int64_t j = row % queries, head = row / queries % heads, b = row / queries / heads;
    const std::int64_t first = (b * kv_heads + head / (heads / kv_heads)) * keys;  // of the rows of k and v
    std::vector<double> e(static_cast<std::size_t>(keys), 0.0);
    double most = -HUGE_VAL, sum = 0;
    const auto at = [&](std::int64_t of, std::int64_t i) { return static_cast<std::size_t>(of * size + i); };
    const auto score = [&](std::int64_t t) {
      double dot = 0;
      for (std::int64_t i = 0; i < size; ++i) dot += q[at(row, i)] * k[at(first + t, i)];
      dot /= std::sqrt(static_cast<double>(size));
      const double m = add.empty() ? 0 : add[static_cast<std::size_t>(row * keys + t)];
      const bool hidden = (causal && t > j) || (allows && m == 0);
      return hidden ? -HUGE_VAL : dot + (allows ? 0 : m);
    };
    for (std::int64_t t = 0; t < keys; ++t) most = std::max(most, score(t));
    if (most == -HUGE_VAL) continue;
    for (std::int64_t t = 0; t < keys; ++t) sum += e[static_cast<std::size_t>(t)] = std::exp(score(t) - most);
    for (std::int64_t t = 0; t < keys; ++t)
      for (std::int64_t i = 0; i < size; ++i)
        y[at(row, i)] += e[static_cast<std::size_t>(t)] / sum * v[at(first + t, i)];
  }
  return Tensor::from(y, x[0].shape());
}

// scaled_dot_product_attention; an input after q, k and v is attn_mask.
OpSpec pytorch_spec(const char* name, const char* formula, bool causal) {
  OpSpec spec{name, formula};
  spec.run = [causal](const Tensors& x) {
    return scaled_dot_product_attention(
        x[0], x[1], x[2], {.attn_mask = optional_input(x, 3), .is_causal = causal, .enable_gqa = true});
  };
  spec.reference = [causal](const Tensors& x) { return loops_over_heads(x, causal); };
  spec.roundings = 64;  // as spec_of
  spec.samples = {{"size_0_batch", sample("pb0", {0, 2, 3, 4}, {0, 2, 3, 4})},
                  {"size_0_queries", sample("pq0", {1, 2, 0, 4}, {1, 2, 3, 4})},
                  {"size_0_keys", sample("pk0", {1, 2, 3, 4}, {1, 2, 0, 4})},
                  {"size_1", sample("pone", {1, 1, 1, 1}, {1, 1, 1, 1})},
                  {"odd_tail", sample("podd", {2, 3, 7, 5}, {2, 3, 7, 5})},
                  {"fewer_queries", sample("pfewer", {1, 2, 5, 3}, {1, 2, 19, 3})},
                  {"more_queries", sample("pmore", {1, 2, 9, 3}, {1, 2, 4, 3})},
                  {"grouped_heads", sample("pgrouped", {2, 6, 6, 4}, {2, 2, 6, 4})},
                  {"strided", strided_copies(sample("pstrided", {1, 2, 6, 4}, {1, 2, 6, 4}))},
                  {"large", sample("plarge", {1, 2, 6, 4}, {1, 2, 6, 4}, 30), false}};
  return spec;
}

OpSpec pytorch_mask_spec() {
  OpSpec spec =
      pytorch_spec("scaled_dot_product_attention_mask", "the same, softmax(q k^T / sqrt(d) + mask) v", false);
  const auto masked = [](const char* stream, const Shape& q, const Shape& k, const Tensor& mask) {
    Tensors x = sample(stream, q, k);
    x.push_back(mask);
    return x;
  };
  const auto allowing = [](const Shape& shape) {
    return raw::cast(sample_indices(shape, "allowed", 2), Dtype::u8);
  };
  spec.samples = {
      {"size_0_keys", masked("mk0", {1, 2, 3, 4}, {1, 2, 0, 4}, sample_normal({3, 0}, "m0"))},
      {"size_1", masked("mone", {1, 1, 1, 1}, {1, 1, 1, 1}, sample_normal({1}, "m1"))},
      {"full", masked("mfull", {2, 3, 7, 5}, {2, 3, 9, 5}, sample_normal({2, 3, 7, 9}, "m2"))},
      {"every_head", masked("mrows", {2, 4, 5, 4}, {2, 2, 6, 4}, sample_normal({2, 1, 5, 6}, "m3"))},
      {"allowed", masked("mallow", {2, 3, 7, 5}, {2, 3, 9, 5}, allowing({7, 9}))},
      {"padding", masked("mpad", {2, 3, 4, 5}, {2, 3, 6, 5}, allowing({2, 1, 1, 6}))},
      {"strided", strided_copies(masked("mstr", {1, 2, 6, 4}, {1, 2, 6, 4}, sample_normal({6, 6}, "m4")))}};
  return spec;
}

}  // namespace

std::vector<OpSpec> attention_specs() {
  AttentionOptions causal, dropped;
  causal.causal = dropped.causal = true;
  dropped.dropout = 0.3;
  dropped.scale = 0.4;
  dropped.dropout_key = random_key(11, "attention_specs", 2);

  AttentionOptions window, unscaled, before, all;
  window.band = {1, 7};
  window.scale = unscaled.scale = 1;
  before.band = {1, 9};
  all.band = {0, 11};
  all.dropout = 0.5;  // factors 0 and 2: with one key a gradient of 0 stays exactly 0
  all.dropout_key = random_key(12, "attention_specs", 3);
  AttentionOptions unit;
  unit.band = {0, 11};
  unit.scale = 1.5;
  unit.unit_eps = 0.1;  // large, so that a gradient through unit vectors of one element is not only rounding
  AttentionOptions long_window = window;
  long_window.band.most = 128;

  std::vector<OpSpec> specs = {
      plain_spec("attention", "softmax(q k^T / sqrt(d)) v", {}),
      plain_spec("attention_causal", "the same, query j sees keys <= j + keys - queries", causal),
      plain_spec("attention_dropout", "the same with dropout on the probabilities", dropped),
      pytorch_spec("scaled_dot_product_attention", "softmax(q k^T / sqrt(d)) v, heads before time", false),
      pytorch_spec("scaled_dot_product_attention_causal", "the same, query j sees keys <= j", true),
      pytorch_mask_spec(),
      packed_spec(),
      packed_past_spec(),
      relative_spec("attention_band", "distances 1 .. 7 alone", window, {}),
      relative_spec("attention_head_scale", "softmax(s_h q k^T) v", unscaled, {true, false, false},
                    {4, 256, 256, 6}),
      relative_spec("attention_bias", "distances 1 .. 7, softmax(s_h (q k^T + bias)) v", window,
                    {true, true, false}),
      relative_spec("attention_window", "the same, distances 1 .. 128", long_window, {true, true, false},
                    {4, 512, 640, 6}),
      relative_spec("attention_positions", "causal, softmax(q (k + position)^T / sqrt(d)) v", causal,
                    {false, false, true}, {32, 128, 128, 4}),
      relative_spec("attention_positions_before", "the same, distances 1 .. 9", before, {false, false, true}),
      relative_spec("attention_all", "distances 0 .. 11, all tables and dropout", all, {true, true, true}),
      past_spec("attention_past", "softmax(q k^T / sqrt(d)) v over keys in two places", {}, {}),
      past_spec("attention_past_window", "the same, distances 1 .. 7, softmax(s_h (q k^T + bias)) v", window,
                {true, true, false}, {4, 512, 128, 6}),
      past_spec("attention_past_all", "the same, distances 0 .. 11, all tables and dropout", all,
                {true, true, true}),
      relative_spec("attention_unit", "distances 0 .. 11, softmax(s_h (unit(q) unit(k)^T + bias)) v", unit,
                    {true, true, false}),
      past_spec("attention_past_unit", "the same with past keys, which are taken as they are", unit,
                {true, true, false})};
  return specs;
}

}  // namespace eddy
