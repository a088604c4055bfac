// What the recurrent transformers share (parameters, embedding, readout, head, checks), and the regular
// transformer, which has one form only.
#include "models/recurrent_transformer/recurrent_transformer.h"

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/recurrent_transformer/paper_operations.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {

Tensor CarriedRows::rows(const std::string& name, Dtype dtype) const {
  if (before.empty()) return {};
  return cast(detach(before.get(name)), dtype);
}

Tensor CarriedRows::past(const WindowLayer& layer, Dtype dtype) const {
  const std::string& path = layer.layer.path;
  if (before.find(path + ".state") != nullptr) return layer.key_value(rows(path + ".state", dtype));
  const Tensor *past = before.find(path + ".past"), *key = before.find(path + ".k");
  if (past != nullptr) return cast(detach(*past), dtype);
  if (key == nullptr) return {};
  const Tensor both = concat({detach(*key), detach(before.get(path + ".v"))}, 1);
  return cast(raw::reshape(both, {both.dim(0), 1, both.dim(1)}), dtype);
}

void CarriedRows::keep(const std::string& name, const Tensor& kept) {
  if (keeps) after.set(name, raw::copy(detach(kept)));
}

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
      head_weight_(head_weight(scope.scope("head"), embed_, config.tied, {config.n_out, config.dim},
                               config.init_std)) {}

double RecurrentTransformer::paper_operations(std::int64_t tokens) const {
  return recurrent_transformer::paper_operations(config(), tokens);
}

void RecurrentTransformer::check_positions(std::int64_t positions) const {
  if (config().positions && positions > config().context)
    fail<ValueError>(
        "{}: {} positions and a position table of {} (raise --model.context, or lower --train.sequence)",
        config().model, positions, config().context);
}

void RecurrentTransformer::check_input(const ForwardInput& input) const {
  if (config().keep_state && input.state.find("position") != nullptr) {
    const std::int64_t rest = check_stream(input.tokens, input.state) % config().block;
    if (rest > 0)
      fail<ValueError>(
          "{}: the state stands {} tokens into a block of {} (go on with `stream` to the block's end)",
          config().model, rest, config().block);
  } else if (!config().keep_state || !input.state.empty()) {
    const bool has_rows = input.tokens.defined() && input.tokens.rank() == 2;
    check_state(input.state, carried_layout(has_rows ? input.tokens.dim(0) : 1));
  }
  check_tokens(input.tokens);
  check_positions(input.tokens.dim(1));
  if (config().keep_state) check_start(input.start, input.tokens.dim(0), 1);
}

CarriedRows RecurrentTransformer::carried_rows(const ForwardInput& input) const {
  // Without a state every row begins with a new one, whatever its flag.
  return {
      input.state, input.state.empty() ? Tensor() : start_flags(input.start, 0), config().keep_state, {}, {}};
}

StateLayout RecurrentTransformer::hidden_layout(std::int64_t batch, std::int64_t rows,
                                                int growing_axis) const {
  StateLayout layout;
  if (!config().keep_state) return layout;
  for (const TransformerLayer& layer : layers_)
    layout.push_back(
        {.name = layer.path + ".state", .shape = {batch, rows, config().dim}, .growing_axis = growing_axis});
  return layout;
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
  if (value_is(config().readout, Readout::last)) return 1;
  if (!value_is(config().readout, Readout::tail)) return time;
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
  CarriedRows carried = carried_rows(input);
  Tensor y = run_layers(drop(embed(tokens, 0, swapped), "embed.drop"), rows, drop, input, carried);
  if (y.dim(swapped ? 0 : 1) != rows) y = narrow(y, swapped ? 0 : 1, time - rows, rows);
  return {input, head(y, swapped), std::move(carried.after)};
}

std::vector<Tensor> RecurrentTransformer::run_layer_again(const ForwardInput& input,
                                                          const std::vector<Tensor>& inputs,
                                                          CarriedRows& carried, LayerBody body) {
  if (input.recompute == Recompute::none) return body(inputs, carried);
  const auto after = std::make_shared<CarriedRows>();
  const std::vector<Tensor> ys = recomputed(
      true,
      [body = std::move(body), before = carried, after](const std::vector<Tensor>& in) {
        CarriedRows rows = before;
        std::vector<Tensor> results = body(in, rows);
        *after = std::move(rows);
        return results;
      },
      inputs);
  carried = std::move(*after);
  return ys;
}

Tensor RegularTransformer::run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                                      const ForwardInput& input, CarriedRows&) const {
  Tensor y = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const bool whole = i + 1 < layers_.size() || input.literal || rows == x.dim(1);
    y = recomputed(input.recompute != Recompute::none,
                   [&layer = layers_[i], drop, whole, rows](const std::vector<Tensor>& in) {
                     if (whole) return layer(in[0], drop);
                     const ScopeGuard scope(layer.path);
                     const WindowLayer window(layer, drop);
                     return window.output(in[0], window.key_value(in[0]), in[0].dim(1) - rows, 0);
                   },
                   {y});
  }
  return y;
}

}  // namespace eddy
