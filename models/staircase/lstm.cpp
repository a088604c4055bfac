// The LSTM baseline, both forms: they differ in the cell, lstm_cell or literal_cell (literal.cpp).
#include "models/staircase/lstm.h"

#include <cmath>
#include <memory>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "ops/ops.h"
#include "ops/product/packed_weights.h"

namespace eddy {
namespace {

std::string of_layer(const char* name, std::size_t layer) {
  return std::string(name) + "." + std::to_string(layer);
}

}  // namespace

StaircaseLstm::StaircaseLstm(const staircase::Config& config, const ParamScope& scope)
    : StaircaseFamily(config, scope) {
  const Init init = Init::uniform(1 / std::sqrt(static_cast<double>(config.dim)));
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const ParamScope layer = scope.scope("lstm").scope(l);
    const std::int64_t in = l == 0 ? config.embed_dim : config.dim, gates = 4 * config.dim;
    layers_.push_back({layer.param("w_ih", {gates, in}, init), layer.param("w_hh", {gates, config.dim}, init),
                       layer.param("b_ih", {gates}, init), layer.param("b_hh", {gates}, init)});
  }
}

StateLayout StaircaseLstm::state_layout(std::int64_t batch, std::int64_t) const {
  StateLayout layout;
  for (std::size_t l = 0; l < layers_.size(); ++l)
    for (const char* name : {"h", "c"})
      layout.push_back({.name = of_layer(name, l), .shape = {batch, config().dim}});
  return layout;
}

State StaircaseLstm::import_state(const State& state, std::int64_t batch) const {
  check_state(state, state_layout(batch, 0));
  return state;
}

StaircaseFamily::Segment StaircaseLstm::run_segment(const Tensor& x, const State& state, Run& run) const {
  const PackedWeightScope packed(x.dim(0));
  State next;
  Tensor sequence = x;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const std::uint64_t call = l > 0 ? run.calls++ : 0;
    const detail::LstmCell before{state.get(of_layer("h", l)), state.get(of_layer("c", l))};
    const auto after = std::make_shared<detail::LstmCell>();
    sequence = recomputed(run.recompute != Recompute::none,
                          [this, l, call, before, run, after](const std::vector<Tensor>& in) {
                            return run_layer(l, in[0], before, call, run, *after);
                          },
                          {sequence});
    next.set(of_layer("h", l), after->h);
    next.set(of_layer("c", l), after->c);
  }
  return {sequence, next};
}

Tensor StaircaseLstm::run_layer(std::size_t l, const Tensor& x, const detail::LstmCell& before,
                                std::uint64_t call, const Run& run, detail::LstmCell& after) const {
  const std::int64_t time = x.dim(0), batch = x.dim(1), dim = config().dim;
  const std::string path = of_layer("lstm", l);
  const ScopeGuard scope(path);
  const Layer& layer = layers_[l];
  const Tensor sequence = l > 0 ? run.drop(x, path + ".drop", call) : x;
  // The state of the chain is f32 also with bf16 activations.
  const Tensor from_below = linear(sequence, layer.w_ih, layer.b_ih + layer.b_hh, {.upcast = true});
  Tensor h = before.h, c = before.c;
  std::vector<Tensor> steps;
  for (std::int64_t t = 0; t < time; ++t) {
    const std::vector<Tensor> cell =
        recomputed(run.recompute == Recompute::block,
                   [&layer, from_below, t, literal = run.literal](const std::vector<Tensor>& in) {
                     const Tensor gates = select(from_below, 0, t) + linear(in[0], layer.w_hh);
                     const auto made = literal ? literal_cell(gates, in[1]) : lstm_cell(gates, in[1]);
                     return std::vector<Tensor>{made.h, made.c};
                   },
                   {h, c});
    h = cell[0];
    c = cell[1];
    name_value("state", h);
    name_value("cell", c);
    steps.push_back(reshape(h, {1, batch, dim}));
  }
  after = {carried(h), carried(c)};
  return activation(concat(steps, 0));
}

// A stream's state is that of a segment: h and c.
Tensor StaircaseLstm::run_stream(const Tensor& x, State& state) const {
  Run run;
  Segment segment = run_segment(x, state, run);
  state = std::move(segment.state);
  return segment.hidden;
}

}  // namespace eddy
