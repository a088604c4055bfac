// A Llama layer and its memory.
#include "models/blockwise_recurrent/layer.h"

#include "autograd/scope.h"
#include "ops/ops.h"

namespace eddy {
namespace {

Tensor split_heads(const Tensor& rows, std::int64_t heads, std::int64_t head_dim) {
  return reshape(rows, Shape{rows.dim(0), rows.dim(1), heads, head_dim});
}

}  // namespace

LlamaMlp::LlamaMlp(const ParamScope& scope, const blockwise_recurrent::Config& config)
    : gate(scope.scope("gate"), config.dim, config.mlp_dim, config.init_std, false),
      up(scope.scope("up"), config.dim, config.mlp_dim, residual_deviation(config), false),
      down(scope.scope("down"), config.mlp_dim, config.dim, config.init_std, false) {}
Tensor LlamaMlp::operator()(const Tensor& x) const {
  const std::vector<Tensor> parts = linear_parts(x, {gate.weight, up.weight});
  return down(swiglu(parts[0], parts[1]));
}

LlamaMemory::LlamaMemory(const ParamScope& scope, std::string memory_path,
                         const blockwise_recurrent::Config& config)
    : path(std::move(memory_path)) {
  const std::int64_t dim = config.dim, kv_dim = config.kv_heads * config.head_dim;
  if (value_is(config.memory_init, blockwise_recurrent::MemoryInit::learned))
    init = scope.param("init", {config.chunk, dim}, Init::zeros());
  if (config.memory_proj) proj.emplace(scope.scope("wm"), dim, dim, residual_deviation(config), false);
  if (config.memory_ffn && config.memory_ffn_prenorm)
    mlp_norm.emplace(scope.scope("mlp_norm"), dim, config.norm_eps);
  if (config.memory_ffn) mlp.emplace(scope.scope("mlp"), config);
  if (config.memory_norm) norm.emplace(scope.scope("norm"), dim, config.norm_eps);
  if (value_is(config.memory_qkv, blockwise_recurrent::MemoryProjections::shared)) return;
  wk.emplace(scope.scope("wk"), dim, kv_dim, config.init_std, false);
  wv.emplace(scope.scope("wv"), dim, kv_dim, config.init_std, false);
  if (config.memory_query)
    dead_query = scope.scope("wq").param("weight", {dim, dim}, Init::normal(config.init_std));
}

Tensor LlamaMemory::evolve(const Tensor& memory, const DropoutSite& drop, std::uint64_t call) const {
  const ScopeGuard scope("memory");
  const Tensor u = proj ? (*proj)(memory) : memory;
  if (!mlp) return norm ? (*norm)(u) : u;
  const Tensor delta = drop((*mlp)(mlp_norm ? (*mlp_norm)(u) : u), path + ".mlp.drop", call);
  return norm ? norm->of_sum(u, delta).norm : u + delta;
}

LlamaLayer::LlamaLayer(const ParamScope& scope, std::string layer_path,
                       const blockwise_recurrent::Config& config)
    : path(std::move(layer_path)),
      heads(config.heads),
      kv_heads(config.kv_heads),
      head_dim(config.head_dim),
      attn_norm(scope.scope("attn_norm"), config.dim, config.norm_eps),
      wq(scope.scope("attn").scope("wq"), config.dim, config.dim, config.init_std, false),
      wk(scope.scope("attn").scope("wk"), config.dim, kv_heads * head_dim, config.init_std, false),
      wv(scope.scope("attn").scope("wv"), config.dim, kv_heads * head_dim, config.init_std, false),
      wo(scope.scope("attn").scope("wo"), config.dim, config.dim, residual_deviation(config), false),
      memory(config.model == "memory_llama"
                 ? std::optional<LlamaMemory>(std::in_place, scope.scope("memory"), path + ".memory", config)
                 : std::nullopt),
      mlp_norm(scope.scope("mlp_norm"), config.dim, config.norm_eps),
      mlp(scope.scope("mlp"), config) {}

Tensor LlamaLayer::query(const Tensor& rows) const {
  return split_heads(wq(rows), heads, head_dim);
}
Tensor LlamaLayer::key(const Tensor& rows) const {
  return split_heads(wk(rows), kv_heads, head_dim);
}
Tensor LlamaLayer::value(const Tensor& rows) const {
  return split_heads(wv(rows), kv_heads, head_dim);
}
KeyValue LlamaLayer::memory_rows(const Tensor& evolved) const {
  const Linear &key = memory->wk ? *memory->wk : wk, &value = memory->wv ? *memory->wv : wv;
  const std::vector<Tensor> parts = linear_parts(evolved, {key.weight, value.weight});
  return {split_heads(parts[0], kv_heads, head_dim), split_heads(parts[1], kv_heads, head_dim)};
}

Tensor LlamaLayer::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                          const AttentionOptions& options) const {
  const ScopeGuard scope("attn");
  return attention_bthd(query, key, value, options);
}

Tensor LlamaLayer::finish(const Tensor& x, const Tensor& attended, const DropoutSite& drop,
                          std::uint64_t call) const {
  Tensor read;
  {
    const ScopeGuard scope("attn");
    read = drop(wo(reshape(attended, x.shape())), path + ".attn.drop", call);
  }
  const ScopeGuard scope("mlp");
  const auto [h, rows] = mlp_norm.of_sum(x, read);
  return h + drop(mlp(rows), path + ".mlp.drop", call);
}

AttentionOptions LlamaLayer::chunk_attention(const DropoutSite& drop, std::uint64_t chunk) const {
  AttentionOptions options;
  options.causal = true;
  options.precision = matmul_precision(wo.weight);
  drop.set_attention(options, path + ".attn.probabilities", chunk);
  return options;
}

}  // namespace eddy
