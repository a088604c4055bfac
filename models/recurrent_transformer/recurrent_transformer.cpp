// What the recurrent transformers share (parameters, embedding, readout, head, checks), and the regular
// transformer, which has one form only.
#include "models/recurrent_transformer/recurrent_transformer.h"

#include "autograd/scope.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {

RecurrentTransformer::~RecurrentTransformer() = default;

RecurrentTransformer::RecurrentTransformer(const recurrent_transformer::Config& config,
                                           const ParamScope& scope)
    : FamilyModel(config),
      embed_(scope.scope("embed"), config.vocab, config.dim, config.init_std),
      positions_(config.positions
                     ? scope.scope("pos_embed")
                           .param("weight", {config.context, config.dim}, Init::normal(config.init_std))
                     : Tensor()),
      final_norm_([&] {
        layers_.reserve(static_cast<std::size_t>(config.layers));
        for (std::int64_t i = 0; i < config.layers; ++i)
          layers_.emplace_back(scope.scope("layers").scope(i), "layers." + std::to_string(i), config);
        return LayerNorm(scope.scope("final_norm"), config.dim, config.norm_eps, config.bias);
      }()),
      head_weight_(config.tied ? embed_.weight
                               : scope.scope("head").param("weight", {config.n_out, config.dim},
                                                           Init::normal(config.init_std))) {}

void RecurrentTransformer::check_positions(std::int64_t positions) const {
  if (config().positions && positions > config().context)
    fail<ValueError>(
        "{}: {} positions and a position table of {} (raise --model.context, or lower --train.sequence)",
        config().model, positions, config().context);
}

void RecurrentTransformer::check_input(const ForwardInput& input) const {
  check_state(input.state, {});
  check_tokens(input.tokens);
  check_positions(input.tokens.dim(1));
}

Tensor RecurrentTransformer::embed(const Tensor& tokens, std::int64_t first, bool is_time_major) const {
  const ScopeGuard scope("embed");
  if (!positions_.defined()) return embed_(tokens, params().activations());
  const std::int64_t time = tokens.dim(is_time_major ? 0 : 1);
  Tensor rows = narrow(positions_, 0, first, time);
  if (is_time_major) rows = reshape(rows, {time, 1, config().dim});
  return embed_(tokens, params().activations(), rows);
}

Classifier RecurrentTransformer::head(const Tensor& y, bool is_time_major) const {
  const ScopeGuard scope("head");
  return {final_norm_(y), head_weight_, {}, is_time_major};
}

std::int64_t RecurrentTransformer::rows_read(const ForwardInput& input) const {
  const std::int64_t time = input.tokens.dim(1);
  if (config().readout == "last") return 1;
  if (config().readout != "tail") return time;
  if (input.tail < 1 || input.tail > time)
    fail<ValueError>("{}: readout tail of {} positions in a sequence of {} (from 1 to the sequence's length)",
                     config().model, input.tail, time);
  return input.tail;
}

ForwardOutput RecurrentTransformer::forward(const ForwardInput& input) const {
  check_input(input);
  const std::int64_t time = input.tokens.dim(1), rows = rows_read(input);
  const bool swapped = time_major(input.literal);
  const DropoutSite drop{input.dropout, config().dropout};
  const Tensor tokens = swapped ? raw::copy(raw::transpose(input.tokens, 0, 1)) : input.tokens;
  Tensor y = run_layers(drop(embed(tokens, 0, swapped), "embed.drop"), rows, drop, input);
  if (y.dim(swapped ? 0 : 1) != rows) y = narrow(y, swapped ? 0 : 1, time - rows, rows);
  return {input, head(y, swapped), {}};
}

Tensor RegularTransformer::run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                                      const ForwardInput& input) const {
  Tensor y = x;
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) y = layers_[i](y, drop);
  const TransformerLayer& last = layers_.back();
  if (input.literal || rows == x.dim(1)) return last(y, drop);
  const ScopeGuard scope(last.path);
  const WindowLayer window(last, drop);
  return window.output(y, window.key_value(y), x.dim(1) - rows, 0);
}

}  // namespace eddy
