// The base layer.
#include "models/transformer_layer.h"

#include <cmath>

#include "autograd/scope.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/views.h"
#include "ops/window_attention.h"

namespace eddy {
namespace {

double residual_deviation(const ModelConfig& config) {
  return config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers));
}

}  // namespace

TransformerLayer::TransformerLayer(const ParamScope& scope, std::string layer_path, const ModelConfig& config)
    : path(std::move(layer_path)),
      attn_norm(scope.scope("attn_norm"), config.dim, config.norm_eps, config.bias),
      wqkv(scope.scope("attn").scope("wqkv"), config.dim, 3 * config.dim, config.init_std, config.bias),
      wo(scope.scope("attn").scope("wo"), config.dim, config.dim, residual_deviation(config), config.bias),
      mlp_norm(scope.scope("mlp_norm"), config.dim, config.norm_eps, config.bias),
      up(scope.scope("mlp").scope("up"), config.dim, config.mlp_dim, config.init_std, config.bias),
      down(scope.scope("mlp").scope("down"), config.mlp_dim, config.dim, residual_deviation(config),
           config.bias),
      heads(config.heads),
      gelu_activation(config.activation == "gelu") {}

Tensor TransformerLayer::activated(const Tensor& rows) const {
  return gelu_activation ? gelu(up(rows)) : up.relu(rows);
}

Tensor TransformerLayer::mlp(const Tensor& z, const Tensor& attended, const DropoutSite& drop,
                             std::uint64_t call) const {
  const ScopeGuard scope("mlp");
  const auto [r, rows] = mlp_norm.of_sum(z, attended);
  return r + drop(down(activated(rows)), path + ".mlp.drop", call);
}

Tensor TransformerLayer::operator()(const Tensor& z, const DropoutSite& drop, std::uint64_t call) const {
  const ScopeGuard scope(path);
  Tensor attended;
  {
    const ScopeGuard inside("attn");
    AttentionOptions options;
    options.causal = true;
    if (drop.active()) {
      options.dropout = drop.rate;
      options.dropout_key = drop.key(path + ".attn.probabilities", call);
    }
    attended = drop(wo(attention_packed(wqkv(attn_norm(z)), heads, options)), path + ".attn.drop", call);
  }
  return mlp(z, attended, drop, call);
}

Tensor TransformerLayer::last_rows(const Tensor& z, std::int64_t rows, const DropoutSite& drop) const {
  const std::int64_t time = z.dim(1), dim = z.dim(2);
  if (rows == time) return (*this)(z, drop);
  const ScopeGuard scope(path);
  Tensor attended;
  {
    const ScopeGuard inside("attn");
    const auto part = [&](const Tensor& x, std::int64_t first, std::int64_t parts) {
      return linear(x, narrow(wqkv.weight, 0, first * dim, parts * dim),
                    wqkv.bias.defined() ? narrow(wqkv.bias, 0, first * dim, parts * dim) : Tensor());
    };
    const Tensor normed = attn_norm(z);
    const Tensor query = part(narrow(normed, 1, time - rows, rows), 0, 1), key_value = part(normed, 1, 2);
    WindowAttentionOptions options;
    options.heads = heads;
    if (drop.active()) {
      options.dropout = drop.rate;
      options.dropout_key = drop.key(path + ".attn.probabilities");
    }
    attended = drop(wo(window_attention(query, {}, key_value, options)), path + ".attn.drop");
  }
  return mlp(narrow(z, 1, time - rows, rows), attended, drop, 0);
}

}  // namespace eddy
