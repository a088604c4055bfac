// The checks of attention's forms, and what follows from their options.
#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/attention/attention.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

// An optional tensor beside q.
void check_extra(const char* op, const Tensor& q, const Tensor& x, const char* name, const Shape& shape,
                 const char* rule) {
  if (!x.defined()) return;
  checks::floating(op, x, name);
  checks::parameter(op, q, x);
  if (x.shape() != shape)
    fail<ShapeError>("{}: {} has shape {} ({}: heads {}, head_size {})", op, name, to_string(x.shape()), rule,
                     q.dim(2), q.dim(3));
}

void check_values(const char* op, const Tensor& k, const Tensor& v) {
  checks::defined(op, v, "v");
  checks::same_kind(op, k, v);
  if (k.shape() != v.shape())
    fail<ShapeError>("{}: k and v differ: {} and {} (equal shapes)", op, to_string(k.shape()),
                     to_string(v.shape()));
}

void check_past(const char* op, const Tensor& k, const AttentionOptions& options) {
  const Tensor &keys = options.past_keys, &values = options.past_values;
  if (!has_past(options)) return;
  if (!keys.defined() || !values.defined())
    fail<ValueError>("{}: {} without {} (a past has both)", op, keys.defined() ? "past_keys" : "past_values",
                     keys.defined() ? "past_values" : "past_keys");
  checks::defined(op, k, "k");
  checks::same_kind(op, k, keys);
  checks::same_kind(op, k, values);
  if (keys.shape() != values.shape())
    fail<ShapeError>("{}: past_keys and past_values differ: {} and {} (equal shapes)", op,
                     to_string(keys.shape()), to_string(values.shape()));
  if (keys.rank() != 4 || k.rank() != 4 || keys.shape().with(1, 0) != k.shape().with(1, 0))
    fail<ShapeError>(
        "{}: past_keys have shape {} and k {} ([batch, keys, kv_heads, head_size], equal but for keys)", op,
        to_string(keys.shape()), to_string(k.shape()));
}

}  // namespace

namespace detail {

bool has_past(const AttentionOptions& options) {
  return options.past_keys.defined() || options.past_values.defined();
}

void check_packed_rows(const char* op, const Tensor& like, const char* name, const Tensor& rows,
                       const Shape& queries) {
  checks::same_kind(op, like, rows);
  if (rows.rank() != 3 || rows.dim(0) != queries[0] || rows.dim(2) != 2 * queries[2])
    fail<ShapeError>("{}: {} has shape {} and the queries {} ([batch, rows, 2 dim])", op, name,
                     to_string(rows.shape()), to_string(queries));
}

void refuse_unit(const char* op, const AttentionOptions& options) {
  if (options.unit_eps)
    fail<ValueError>("{}: unit_eps {} (only attention_bthd scales queries and keys to length 1)", op,
                     *options.unit_eps);
}

AttentionOptions without_unit(AttentionOptions options) {
  options.unit_eps.reset();
  return options;
}

AttentionOptions with_upcast_tables(AttentionOptions options) {
  for (Tensor* table : {&options.head_scale, &options.bias, &options.positions}) *table = upcast(*table);
  return options;
}

AttentionOptions with_wide_past(const char* op, const Tensor& q, AttentionOptions options) {
  for (Tensor* part : {&options.past_keys, &options.past_values}) *part = upcast_like(op, q, *part);
  return options;
}

void check_numbers(const char* op, const AttentionOptions& options) {
  if (!(options.dropout >= 0 && options.dropout < 1))
    fail<ValueError>("{}: dropout {} (at least 0 and below 1)", op, options.dropout);
  if (options.dropout > 0 && options.dropout_key.key0 == 0 && options.dropout_key.key1 == 0)
    fail<ValueError>(
        "{}: dropout {} without a dropout_key (random_key(seed, \"name\", step): one key is one mask)", op,
        options.dropout);
  if (!std::isfinite(options.scale))
    fail<ValueError>("{}: scale {} (finite; 0 stands for 1 / sqrt(head_size))", op, options.scale);
  const AttentionBand band = attention_band(options);
  if (band.least > band.most)
    fail<ValueError>("{}: no distance lies in the band {} .. {}{} (least <= most)", op, band.least, band.most,
                     options.causal ? ", causal" : "");
}

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
  check_values(op, k, v);
  check_past(op, k, options);
  if (q.dim(0) != k.dim(0))
    fail<ShapeError>("{}: batch sizes differ: q {}, k {} (one batch)", op, q.dim(0), k.dim(0));
  if (q.dim(3) != k.dim(3))
    fail<ShapeError>("{}: head sizes differ: q {}, k {} (one head_size)", op, q.dim(3), k.dim(3));
  const std::int64_t heads = q.dim(2), kv_heads = k.dim(2);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0)
    fail<ShapeError>("{}: kv_heads must divide heads: heads {}, kv_heads {}", op, heads, kv_heads);
  check_numbers(op, options);
  const AttentionBand band = attention_band(options);
  check_extra(op, q, options.head_scale, "head_scale", {heads}, "[heads]");
  const std::int64_t queries = q.dim(1),
                     keys = k.dim(1) + (options.past_keys.defined() ? options.past_keys.dim(1) : 0);
  const auto check_distances = [&](const Tensor& table, const char* name, std::int64_t count) {
    if (band.least < 0)
      fail<ValueError>("{}: {} needs a causal band: band.least {} (at least 0, or causal)", op, name,
                       band.least);
    const std::int64_t farthest = std::min(band.most, keys - 1);
    if (queries > 0 && farthest >= band.least && count <= farthest)
      fail<ValueError>(
          "{}: {} {} has no entry for distance {} (queries {}, keys {}: distances up to {} are visible)", op,
          name, to_string(table.shape()), count, queries, keys, farthest);
  };
  if (options.bias.defined()) {
    const Tensor& bias = options.bias;
    check_extra(op, q, bias, "bias", {heads, bias.rank() == 2 ? bias.dim(1) : 0}, "[heads, distances]");
    check_distances(bias, "bias", bias.dim(1));
  }
  if (options.positions.defined()) {
    const Tensor& positions = options.positions;
    check_extra(op, q, positions, "positions", {positions.rank() == 2 ? positions.dim(0) : 0, q.dim(3)},
                "[distances, head_size]");
    check_distances(positions, "positions", positions.dim(0));
  }
}

std::optional<ConcatenatedPast> concat_past(const char* op, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options) {
  if (!has_past(options)) return {};
  check_past(op, k, options);
  check_values(op, k, v);
  ConcatenatedPast joined{concat({options.past_keys, k}, 1), concat({options.past_values, v}, 1), options};
  joined.options.past_keys = joined.options.past_values = Tensor();
  return joined;
}

void check_packed_keys(const char* op, const Tensor& q, const Tensor& past, const Tensor& own,
                       std::int64_t heads) {
  checks::floating(op, q, "q");
  checks::same_kind(op, q, own);
  if (q.rank() != 3) fail<ShapeError>("{}: q has shape {} ([batch, queries, dim])", op, to_string(q.shape()));
  if (heads < 1 || q.dim(2) % heads != 0)
    fail<ShapeError>("{}: heads must divide dim: heads {}, dim {}", op, heads, q.dim(2));
  for (const auto& [name, rows] : {std::pair{"own", &own}, std::pair{"past", &past}})
    if (rows->defined()) check_packed_rows(op, q, name, *rows, q.shape());
}

Tensor readable(const Tensor& x) {
  return !x.defined() || x.dim(-1) <= 1 || x.strides()[x.rank() - 1] == 1 ? x : raw::copy(x);
}

AttentionBand attention_band(const AttentionOptions& options) {
  return apply_causal(options.band, options.causal);
}

double attention_scale(const AttentionOptions& options, std::int64_t head_size) {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(head_size));
}

std::uint32_t attention_drop_below(const AttentionOptions& options) {
  return static_cast<std::uint32_t>(std::ceil(options.dropout * 0x1p24));
}

}  // namespace detail

}  // namespace eddy
