// What the block-wise recurrent models share, and the causal Llama, which has one form only.
#include "models/blockwise_recurrent/blockwise_recurrent.h"

#include <algorithm>

#include "autograd/scope.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {

LlamaModel::LlamaModel(const blockwise_recurrent::Config& config, const ParamScope& scope)
    : FamilyModel(config),
      embed_(scope.scope("embed"), config.vocab, config.dim, config.init_std),
      final_norm_([&] {
        layers_.reserve(static_cast<std::size_t>(config.layers));
        for (std::int64_t i = 0; i < config.layers; ++i)
          layers_.emplace_back(scope.scope("layers").scope(i), "layers." + std::to_string(i), config);
        return RmsNorm(scope.scope("final_norm"), config.dim, config.norm_eps);
      }()),
      head_weight_(head_weight(scope.scope("head"), embed_, config.tied, {config.n_out, config.dim},
                               config.init_std)) {}

std::int64_t LlamaModel::state_count(const State& state, const char* name, std::int64_t most) const {
  const std::int64_t count = state.count(name);
  if (count < 0 || count > most)
    fail<ValueError>("{}: the state's {} is {} (from 0 to {})", config().model, name, count, most);
  return count;
}

Tensor LlamaModel::embed(const Tensor& tokens) const {
  const ScopeGuard scope("embed");
  return embed_(tokens, params().activations());
}

Classifier LlamaModel::head(const Tensor& y) const {
  const ScopeGuard scope("head");
  return {final_norm_(y), head_weight_, {}};
}

Tensor CausalLlama::run_layer(const LlamaLayer& layer, const Tensor& x, const DropoutSite& drop) const {
  const ScopeGuard scope(layer.path);
  AttentionOptions options;
  options.causal = true;
  options.precision = params().matmul_precision();
  if (windowed()) options.band = {0, config().window - 1};
  drop.set_attention(options, layer.path + ".attn.probabilities");
  const Tensor rows = layer.attn_norm(x);
  const Tensor attended =
      layer.attend(rotary_bthd(layer.query(rows), 0, config().rope_theta),
                   rotary_bthd(layer.key(rows), 0, config().rope_theta), layer.value(rows), options);
  return layer.finish(x, attended, drop, 0);
}

ForwardOutput CausalLlama::forward(const ForwardInput& input) const {
  check_tokens(input.tokens);
  check_state(input.state, {});
  const DropoutSite drop{input.dropout, config().dropout};
  Tensor x = drop(embed(input.tokens), "embed.drop");
  for (const LlamaLayer& layer : layers_)
    x = recomputed(
        input.recompute != Recompute::none,
        [this, &layer, drop](const std::vector<Tensor>& in) { return run_layer(layer, in[0], drop); }, {x});
  return {input, head(x), {}};
}

}  // namespace eddy
