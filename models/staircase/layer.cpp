// The layer of the staircase family, its fast form; the literal form is StaircaseLayer::literal in
// literal.cpp.
#include "models/staircase/layer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "models/named_place.h"
#include "ops/cast/upcast.h"
#include "ops/ops.h"

namespace eddy {
namespace {

Init uniform(std::int64_t fan_in, double gain = 1) {
  return Init::uniform(gain / std::sqrt(static_cast<double>(fan_in)));
}

// What the two matrices that write into the residual stream are scaled by at the start.
double residual_gain(const staircase::Config& config) {
  return config.prenorm ? 1 / std::sqrt(2.0 * static_cast<double>(config.layers)) : 1;
}

LayerNorm first_norm(const ParamScope& scope, const staircase::Config& config, const StaircaseLayer* shared,
                     const LayerNorm* shared_norm) {
  // With post-norm the norm belongs to the residual stream, not to the keys: every layer keeps its own.
  if (shared != nullptr && config.prenorm) return *shared_norm;
  return {scope.scope("attn_norm"), config.dim, config.norm_eps, true};
}

}  // namespace

StaircaseLayer::StaircaseLayer(const ParamScope& scope, std::string layer_path,
                               const staircase::Config& config, const StaircaseLayer* shared)
    : path(std::move(layer_path)),
      heads(config.heads),
      head_dim(config.head_dim),
      prenorm_(config.prenorm),
      attn_norm_(first_norm(scope, config, shared, shared != nullptr ? &shared->attn_norm_ : nullptr)),
      mlp_norm_(scope.scope("mlp_norm"), config.dim, config.norm_eps, true) {
  const std::int64_t dim = config.dim, inner = heads * head_dim, mlp = config.mlp_dim;
  const double gain = residual_gain(config);
  const ParamScope attn = scope.scope("attn");
  wq_ = attn.scope("wq").param("weight", {inner, dim}, uniform(dim));
  wk_ = shared != nullptr ? shared->wk_ : attn.scope("wk").param("weight", {inner, dim}, uniform(dim));
  wv_ = shared != nullptr ? shared->wv_ : attn.scope("wv").param("weight", {inner, dim}, uniform(dim));
  wo_ = attn.scope("wo").param("weight", {dim, inner}, uniform(inner, gain));
  const Init up = uniform(dim), down = uniform(mlp, gain);
  mlp_.emplace(FeedForward{{scope.scope("mlp").scope("up"), dim, mlp, up, up},
                           {scope.scope("mlp").scope("down"), mlp, dim, down, down}});
}

Tensor StaircaseLayer::normed(const Tensor& x) const {
  const ScopeGuard scope(path), inside("attn");
  return prenorm_ ? attn_norm_(x) : x;
}

KeysValues StaircaseLayer::keys_values(const Tensor& normed_rows, const Tensor& normed_past) const {
  const ScopeGuard scope(path), inside("attn");
  const Tensor normed_context = normed_past.defined() ? concat({normed_past, normed_rows}, 1) : normed_rows;
  const Shape by_head{normed_context.dim(0), normed_context.dim(1), heads, head_dim};
  return {reshape(linear(normed_context, wk_), by_head), reshape(linear(normed_context, wv_), by_head)};
}

Tensor StaircaseLayer::mean_bias(const Tensor& normed_x, const AttentionOptions& options) const {
  const std::int64_t inner = heads * head_dim;
  const Tensor q =
      reshape(linear(normed_x, wq_, {}, {.upcast = true}), {normed_x.dim(0) * normed_x.dim(1), inner});
  const Tensor by_head = reshape(mean(q, 0), {heads, head_dim});
  return matmul(by_head, transpose(upcast(options.positions), 0, 1)) *
         (1 / std::sqrt(static_cast<double>(head_dim)));
}

Tensor StaircaseLayer::operator()(const Tensor& x, const Tensor& normed_x, const KeysValues& context,
                                  const LayerCall& call, const Tensor& normed_past) const {
  const ScopeGuard scope(path);
  const std::int64_t batch = x.dim(0), time = x.dim(1);
  Tensor h, rows;  // the residual stream, and what the MLP reads
  {
    const ScopeGuard inside("attn");
    AttentionOptions options = call.attention;
    options.precision = matmul_precision(wo_);
    call.drop.set_attention(options, path + ".attn.probabilities", call.index);
    if (call.first >= 0) {
      const std::int64_t keys =
          context.k.defined() ? context.rows() : time + (normed_past.defined() ? normed_past.dim(1) : 0);
      name_place(call.first, call.first + time - keys - call.behind);
    }
    if (options.positions.defined()) name_value("bias", [&] { return mean_bias(normed_x, options); });
    Tensor mixed;
    if (context.k.defined()) {
      const Tensor q = reshape(linear(normed_x, wq_), {batch, time, heads, head_dim});
      mixed = reshape(attend(q, context, options, call.literal), {batch, time, heads * head_dim});
    } else {
      mixed = self_attention(normed_x, normed_past, {wq_, wk_, wv_}, heads, options);
    }
    const SumAndNorm sum = (prenorm_ ? mlp_norm_ : attn_norm_).of_sum(x, LinearTerm{mixed, wo_});
    h = prenorm_ ? sum.sum : sum.norm;
    rows = sum.norm;
  }
  const ScopeGuard inside("mlp");
  const FeedForward& mlp = *mlp_;
  const auto dropped = [&] { return mlp.down(call.drop(mlp.hidden(rows), path + ".mlp.drop", call.index)); };
  if (prenorm_) return call.drop.active() ? h + dropped() : mlp(rows, h);
  return mlp_norm_.of_sum(h, call.drop.active() ? dropped() : mlp(rows)).norm;
}

Tensor position_rows(const Tensor& key_pe, std::int64_t distances, std::int64_t last) {
  const std::int64_t span = key_pe.dim(1);
  std::vector<std::int64_t> columns(static_cast<std::size_t>(distances));
  for (std::int64_t d = 0; d < distances; ++d)
    columns[static_cast<std::size_t>(d)] = std::clamp<std::int64_t>(last - d, 0, span - 1);
  const Tensor ids = raw::to_device(Tensor::from(columns, {distances}), key_pe.device());
  return embedding(transpose(key_pe, 0, 1), ids);
}

}  // namespace eddy
