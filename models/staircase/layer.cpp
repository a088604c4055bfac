// The layer of the staircase family, its fast form; the literal form is StaircaseLayer::literal in
// literal.cpp.
#include "models/staircase/layer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/scope.h"
#include "ops/ops.h"

namespace eddy {
namespace {

Tensor uniform_param(const ParamScope& scope, const char* name, const Shape& shape, std::int64_t fan_in,
                     double gain = 1) {
  return scope.param(name, shape, Init::uniform(gain / std::sqrt(static_cast<double>(fan_in))));
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
  wq_ = uniform_param(attn.scope("wq"), "weight", {inner, dim}, dim);
  wk_ = shared != nullptr ? shared->wk_ : uniform_param(attn.scope("wk"), "weight", {inner, dim}, dim);
  wv_ = shared != nullptr ? shared->wv_ : uniform_param(attn.scope("wv"), "weight", {inner, dim}, dim);
  wo_ = uniform_param(attn.scope("wo"), "weight", {dim, inner}, inner, gain);
  const ParamScope up = scope.scope("mlp").scope("up"), down = scope.scope("mlp").scope("down");
  up_ = uniform_param(up, "weight", {mlp, dim}, dim);
  up_bias_ = uniform_param(up, "bias", {mlp}, dim);
  down_ = uniform_param(down, "weight", {dim, mlp}, mlp, gain);
  down_bias_ = uniform_param(down, "bias", {dim}, mlp, gain);
}

Tensor StaircaseLayer::normed(const Tensor& x) const {
  return prenorm_ ? attn_norm_(x) : x;
}

KeysValues StaircaseLayer::keys_values(const Tensor& normed_context) const {
  const Shape by_head{normed_context.dim(0), normed_context.dim(1), heads, head_dim};
  return {reshape(linear(normed_context, wk_), by_head), reshape(linear(normed_context, wv_), by_head)};
}

Tensor StaircaseLayer::operator()(const Tensor& x, const Tensor& normed_x, const KeysValues& context,
                                  const LayerCall& call, const Tensor& normed_past) const {
  const ScopeGuard scope(path);
  const std::int64_t batch = x.dim(0), time = x.dim(1);
  Tensor h, rows;  // the residual stream, and what the MLP reads
  {
    const ScopeGuard inside("attn");
    AttentionOptions options = call.attention;
    call.drop.set_attention(options, path + ".attn.probabilities", call.index);
    const auto attended = [&] {
      const Tensor q = reshape(linear(normed_x, wq_), {batch, time, heads, head_dim});
      return reshape(attend(q, context, options, call.literal), {batch, time, heads * head_dim});
    };
    const auto attended_jointly = [&] {
      const Tensor past = normed_past.defined() ? joint_linear(normed_past, {wk_, wv_}) : Tensor();
      return attention_packed(joint_linear(normed_x, {wq_, wk_, wv_}), heads, options, past);
    };
    const Tensor mixed = context.k.defined() ? attended() : attended_jointly();
    const SumAndNorm sum = (prenorm_ ? mlp_norm_ : attn_norm_).of_sum(x, mixed, wo_);
    h = prenorm_ ? sum.sum : sum.norm;
    rows = sum.norm;
  }
  const ScopeGuard inside("mlp");
  const auto dropped = [&] {
    const Tensor u = linear_relu(rows, up_, up_bias_);
    return linear(call.drop(u, path + ".mlp.drop", call.index), down_, down_bias_);
  };
  if (prenorm_ && !call.drop.active()) return add_relu_mlp(h, rows, up_, up_bias_, down_, down_bias_);
  const Tensor delta = call.drop.active() ? dropped() : relu_mlp(rows, up_, up_bias_, down_, down_bias_);
  return prenorm_ ? h + delta : mlp_norm_.of_sum(h, delta).norm;
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
