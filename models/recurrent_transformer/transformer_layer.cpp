// The base layer T: as a whole (operator(), attention and MLP in ten lines), and in parts (WindowLayer).
#include "models/recurrent_transformer/transformer_layer.h"

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "ops/ops.h"

namespace eddy {
TransformerLayer::TransformerLayer(const ParamScope& scope, std::string layer_path,
                                   const recurrent_transformer::Config& config)
    : path(std::move(layer_path)),
      attn_norm(scope.scope("attn_norm"), config.dim, config.norm_eps, config.bias),
      wqkv(scope.scope("attn").scope("wqkv"), config.dim, 3 * config.dim, config.init_std, config.bias),
      wo(scope.scope("attn").scope("wo"), config.dim, config.dim, residual_deviation(config), config.bias),
      mlp_norm(scope.scope("mlp_norm"), config.dim, config.norm_eps, config.bias),
      feed_forward{{scope.scope("mlp").scope("up"), config.dim, config.mlp_dim, config.init_std, config.bias},
                   {scope.scope("mlp").scope("down"), config.mlp_dim, config.dim, residual_deviation(config),
                    config.bias},
                   value_is(config.activation, recurrent_transformer::Activation::gelu)},
      heads(config.heads),
      rotary(config.rotary) {}

UnitRecurrenceWeights TransformerLayer::weights() const {
  const auto& [up, down, gelu] = feed_forward;
  return {attn_norm.weight, attn_norm.bias, wqkv.weight, wqkv.bias, wo.weight,   wo.bias,
          mlp_norm.weight,  mlp_norm.bias,  up.weight,   up.bias,   down.weight, down.bias};
}

Tensor TransformerLayer::placed(const Tensor& rows, std::int64_t count, std::int64_t first) const {
  if (!rotary) return rows;
  const std::int64_t size = wo.weight.dim(1) / heads, others = rows.dim(2) / size - count;
  const Tensor by_head = reshape(rows, {rows.dim(0), rows.dim(1), count + others, size});
  const Tensor turned = rotary_bthd(narrow(by_head, 2, 0, count), first);
  return reshape(others == 0 ? turned : concat({turned, narrow(by_head, 2, count, others)}, 2), rows.shape());
}

void TransformerLayer::name_state(const Tensor& h) const {
  const ScopeGuard scope(path);
  name_value("state", h);
}

Tensor TransformerLayer::mlp(const Tensor& z, const Tensor& attended, const DropoutSite& drop,
                             std::uint64_t call) const {
  return mlp(mlp_norm.of_sum(z, attended), drop, call);
}

Tensor TransformerLayer::mlp(const SumAndNorm& read, const DropoutSite& drop, std::uint64_t call) const {
  const ScopeGuard scope("mlp");
  if (!drop.active()) return feed_forward(read.norm, read.sum);
  return read.sum + drop(feed_forward(read.norm), path + ".mlp.drop", call);
}

SumAndNorm TransformerLayer::mlp_and_norm(const SumAndNorm& read, const DropoutSite& drop,
                                          std::uint64_t call) const {
  const ScopeGuard scope("mlp");
  if (!drop.active()) return attn_norm.of_sum(read.sum, feed_forward.term(read.norm));
  return attn_norm.of_sum(read.sum, drop(feed_forward(read.norm), path + ".mlp.drop", call));
}

Tensor TransformerLayer::operator()(const Tensor& z, const DropoutSite& drop, std::uint64_t call) const {
  const ScopeGuard scope(path);
  SumAndNorm read;
  {
    const ScopeGuard inside("attn");
    AttentionOptions options;
    options.causal = true;
    options.precision = matmul_precision(wo.weight);
    drop.set_attention(options, path + ".attn.probabilities", call);
    const Tensor mixed = attention_packed(placed(wqkv(attn_norm(z)), 2 * heads, 0), heads, options);
    read = drop.active() ? mlp_norm.of_sum(z, drop(wo(mixed), path + ".attn.drop", call))
                         : mlp_norm.of_sum(z, wo.term(mixed));
  }
  return mlp(read, drop, call);
}

WindowLayer::WindowLayer(const TransformerLayer& whole, const DropoutSite& drop) : layer(whole), drop_(drop) {
  const Linear& all = layer.wqkv;
  const std::int64_t dim = all.weight.dim(1);
  query_weight_ = narrow(all.weight, 0, 0, dim);
  key_value_weight_ = narrow(all.weight, 0, dim, 2 * dim);
  if (!all.bias.defined()) return;
  query_bias_ = narrow(all.bias, 0, 0, dim);
  key_value_bias_ = narrow(all.bias, 0, dim, 2 * dim);
}

std::pair<Tensor, Tensor> WindowLayer::query_key_value(const Tensor& rows) const {
  const Tensor normed = layer.attn_norm(rows);
  return {linear(normed, query_weight_, query_bias_), linear(normed, key_value_weight_, key_value_bias_)};
}

Tensor WindowLayer::query(const Tensor& rows) const {
  return linear(layer.attn_norm(rows), query_weight_, query_bias_);
}

Tensor WindowLayer::key_value(const Tensor& rows) const {
  return linear(layer.attn_norm(rows), key_value_weight_, key_value_bias_);
}

Tensor WindowLayer::attended(const Tensor& queries, const Tensor& past, const Tensor& own,
                             std::uint64_t call) const {
  const ScopeGuard scope("attn");
  AttentionOptions options;
  options.causal = true;
  options.precision = matmul_precision(layer.wo.weight);
  drop_.set_attention(options, layer.path + ".attn.probabilities", call);
  return drop_(layer.wo(attention_packed_keys(queries, past, own, layer.heads, options)),
               layer.path + ".attn.drop", call);
}

Tensor WindowLayer::finish(const Tensor& rows, const Tensor& queries, const Tensor& past, const Tensor& own,
                           std::uint64_t call) const {
  return layer.mlp(rows, attended(queries, past, own, call), drop_, call);
}

std::pair<Tensor, Tensor> WindowLayer::finish_and_key_value(const Tensor& rows, const Tensor& queries,
                                                            const Tensor& past, const Tensor& own,
                                                            std::uint64_t call) const {
  const SumAndNorm h =
      layer.mlp_and_norm(layer.mlp_norm.of_sum(rows, attended(queries, past, own, call)), drop_, call);
  return {h.sum, linear(h.norm, key_value_weight_, key_value_bias_)};
}

Tensor WindowLayer::output(const Tensor& h, const Tensor& keys_values, std::int64_t skipped,
                           std::uint64_t call) const {
  const Tensor rows = skipped == 0 ? h : narrow(h, 1, skipped, h.dim(1) - skipped);
  return finish(rows, layer.placed(query(rows), layer.heads, skipped), {},
                layer.placed(keys_values, layer.heads, 0), call);
}

}  // namespace eddy
