// The vertical direction: one layer over tokens.
#include "models/block_recurrent/layer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "ops/ops.h"

namespace eddy {
namespace {

bool contains(const std::vector<std::int64_t>& list, std::int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

Tensor BlockCall::dropped(const Tensor& x, const std::string& path) const {
  return drop.active() ? tiled_dropout(x, drop.rate, drop.key(path, draw), tile, first) : x;
}

BlockRecurrentLayer::BlockRecurrentLayer(const ParamScope& layers, std::int64_t index,
                                         const block_recurrent::Config& config)
    : path("layers." + std::to_string(index)),
      reads_state(config.feedback || contains(config.recurrent_layers, index)),
      rules_(config),
      eps_(config.norm_eps),
      window_(config.window) {
  const ParamScope scope = layers.scope(index), attn = scope.scope("attn");
  const std::int64_t dim = config.dim, width = config.heads * config.head_dim;
  attn_norm_ = scope.scope("attn_norm").param("weight", {dim}, Init::ones());
  wq_ = scaled_matrix(attn, "wq", width, dim);
  wk_ = scaled_matrix(attn, "wk", width, dim);
  wv_ = scaled_matrix(attn, "wv", width, dim);
  wo_ = scaled_matrix(attn, "wo", dim, reads_state ? 2 * width : width);
  scale_ = rules_.learned_scale(attn, "scale");
  if (config.memory_bias || !contains(config.memory_layers, index))
    rel_bias_ = attn.param("rel_bias", {config.heads, config.rel_buckets},
                           Init::normal(1 / std::sqrt(static_cast<double>(config.rel_buckets))));
  else
    attn.omitted("rel_bias",
                 "model.memory_bias = false has no relative bias in memory layers: take it out of the file, "
                 "where nothing reads it");
  if (reads_state) {
    cross_wq_ = scaled_matrix(scope.scope("cross"), "wq", width, dim);
    cross_scale_ = rules_.learned_scale(scope.scope("cross"), "scale");
  }
  if (contains(config.memory_layers, index)) memory.emplace(scope.scope("memory"), config);
  mlp_norm_ = scope.scope("mlp_norm").param("weight", {dim}, Init::ones());
  mlp_.emplace(FeedForward{{scope.scope("mlp").scope("up"), dim, config.mlp_dim, scaled(dim)},
                           {scope.scope("mlp").scope("down"), config.mlp_dim, dim, scaled(config.mlp_dim)}});
  if (contains(config.recurrent_layers, index)) cell.emplace(scope.scope("recurrent"), config);
}

Tensor TokenHeads::last_keys(std::int64_t rows) const {
  const Tensor last = last_rows(k, rows);
  return unit_eps ? unit_norm(last, *unit_eps) : last;
}

TokenHeads BlockRecurrentLayer::project(const Tensor& x, const BlockCall& call, bool unit_later) const {
  const ScopeGuard scope("attn");
  const Tensor u = call.dropped(rms_norm(x, attn_norm_, eps_), path + ".pre_attn");
  const bool later = unit_later && rules_.unit;
  const Tensor q = linear(u, wq_), k = linear(u, wk_);
  TokenHeads heads{later ? rules_.split(q) : rules_.split_queries(q),
                   later ? rules_.split(k) : rules_.split_keys(k),
                   rules_.split(linear(u, wv_)),
                   {}};
  if (later) heads.unit_eps = rules_.eps;
  if (reads_state) heads.state_q = rules_.split_queries(linear(u, cross_wq_));
  return heads;
}

Tensor BlockRecurrentLayer::finish(const Tensor& x, const TokenHeads& heads, const KeysValues& tokens,
                                   const StateRead& read, const MemoryEntries* entries,
                                   const BlockCall& call) const {
  SumAndNorm read_rows;  // the residual stream, and what the MLP reads
  {
    const ScopeGuard scope("attn");
    AttentionOptions options;
    options.scale = 1;
    options.precision = matmul_precision(wo_);
    options.band = {1, window_};
    options.head_scale = rules_.scale(scale_);
    options.unit_eps = heads.unit_eps;
    if (rel_bias_.defined()) options.bias = distance_bias(rel_bias_, call.bias_index);
    name_value("bias", options.bias);
    call.attn_drop.set_attention(options, path + ".attn_probs", call.draw);
    Tensor mixed = attend(heads.q, tokens, options, call.literal);
    if (memory) mixed = memory->mix(mixed, heads.q, *entries, options.head_scale, call.literal);
    mixed = rules_.join(mixed);
    if (reads_state) {
      // Each part of the tokens reads its own state: parts become sequences of the batch.
      AttentionOptions cross;
      cross.scale = 1;
      cross.precision = options.precision;
      cross.head_scale = rules_.scale(cross_scale_);
      const std::int64_t sequences = read.keys.dim(0), rows = x.dim(0) * x.dim(1) / sequences;
      const ScopeGuard inside("cross");
      const Tensor q = reshape(heads.state_q, {sequences, rows, rules_.heads, rules_.head_dim});
      mixed = concat(
          {mixed, reshape(attend(q, {read.keys, read.values}, cross, call.literal), mixed.shape())}, 2);
    }
    read_rows = add_rms_norm(x, LinearTerm{mixed, wo_}, mlp_norm_, eps_);
  }
  const ScopeGuard scope("mlp");
  const auto& [y, rows] = read_rows;
  return call.drop.active() ? y + call.dropped((*mlp_)(rows), path + ".post_mlp") : (*mlp_)(rows, y);
}

}  // namespace eddy
