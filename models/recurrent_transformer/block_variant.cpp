// What block recurrences share: the layout in blocks, one layer taken apart, readout, and streaming.
#include "models/recurrent_transformer/block_variant.h"

#include <algorithm>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// `rows` behind what the state holds under `name`, if anything: along the axis of positions.
Tensor appended(const State& state, const std::string& name, const Tensor& rows) {
  const Tensor* before = state.find(name);
  return before == nullptr ? rows : concat({*before, rows}, 1);
}

std::string layer_name(std::size_t i) {
  return "layers." + std::to_string(i);
}

}  // namespace

std::vector<Tensor> BlockRows::blocks() const {
  std::vector<Tensor> parts;
  if (full.defined()) {
    const Shape& s = full.shape();
    for (const Tensor& part : split(full, 0, std::vector<std::int64_t>(static_cast<std::size_t>(s[0]), 1)))
      parts.push_back(reshape(part, {s[1], s[2], s[3]}));
  }
  if (rest.defined()) parts.push_back(rest);
  return parts;
}

Tensor BlockRows::run() const {
  const auto run_of = [](const Tensor& part) {
    return reshape(part, {part.elements() / part.dim(-1), part.dim(-1)});
  };
  if (!rest.defined()) return run_of(full);
  return full.defined() ? concat({run_of(full), run_of(rest)}, 0) : run_of(rest);
}

std::int64_t BlockPlan::skipped(std::int64_t i) const {
  return std::clamp<std::int64_t>(first_read - i * block, 0, length(i));
}

std::int64_t BlockRecurrence::block_of(const ForwardInput& input) const {
  if (input.block < 0)
    fail<ValueError>("{}: a block of {} positions (at least 1, or 0 for model.block)", config().model,
                     input.block);
  return input.block > 0 ? input.block : config().block;
}

BlockRows BlockRecurrence::embed_blocks(const Tensor& tokens, const BlockPlan& plan,
                                        const DropoutSite& drop) const {
  const ScopeGuard scope("embed");
  const std::int64_t blocks = plan.full(), covered = blocks * plan.block, left = plan.time - covered;
  BlockRows ids;
  if (blocks > 0)
    ids.full = raw::copy(raw::transpose(
        raw::reshape(raw::copy(raw::narrow(tokens, 1, 0, covered)), {plan.batch, blocks, plan.block}), 0, 1));
  if (left > 0) ids.rest = raw::copy(raw::narrow(tokens, 1, covered, left));
  return ids.map([&](const Tensor& part, std::uint64_t which) {
    Tensor rows;
    if (positions_.defined())
      rows = which == 0 ? reshape(narrow(positions_, 0, 0, covered), {blocks, 1, plan.block, config().dim})
                        : narrow(positions_, 0, covered, left);
    return drop(embed_(part, params().activations(), rows), "embed.drop", which);
  });
}

ForwardOutput BlockRecurrence::forward(const ForwardInput& input) const {
  const std::int64_t block = block_of(input);
  if (input.literal) return RecurrentTransformer::forward(input);
  check_input(input);
  const DropoutSite drop{input.dropout, config().dropout};
  const std::int64_t time = input.tokens.dim(1);
  BlockPlan plan{input.tokens.dim(0), time, block, 0};
  BlockRows x = embed_blocks(input.tokens, plan, drop);
  const std::size_t last = layers_.size() - 1;
  for (std::size_t i = 0; i < last; ++i) {
    const ScopeGuard scope(layers_[i].path);
    x = run_layer(WindowLayer(layers_[i], drop), x, plan);
  }
  plan.first_read = time - rows_read(input);
  Tensor y;
  {
    const ScopeGuard scope(layers_[last].path);
    y = run_last_layer(WindowLayer(layers_[last], drop), x, plan);
  }
  return {input, head(y, false), {}};
}

Tensor BlockRecurrence::run_layers(const Tensor& x, std::int64_t, const DropoutSite& drop,
                                   const ForwardInput& input) const {
  Tensor y = x;
  for (const TransformerLayer& layer : layers_) y = run_literal(layer, y, drop, block_of(input));
  return y;
}

double BlockRecurrence::forward_macs_per_token(std::int64_t time) const {
  const std::int64_t block = config().block, rows = least_rows(time);
  const double last = layer_macs({1, time, block, time - rows});
  const double below = config().layers > 1 ? layer_macs({1, time, block, 0}) : 0;
  const double head = static_cast<double>(rows * config().dim * config().n_out);
  return (static_cast<double>(config().layers - 1) * below + last + head) / static_cast<double>(time);
}

std::int64_t BlockRecurrence::stream_room(const State& state) const {
  if (!config().positions) return -1;
  return config().context - (state.empty() ? 0 : state.get("position").item_int());
}

RecurrentTransformer::NamedShapes BlockRecurrence::stream_shapes(std::int64_t batch,
                                                                 std::int64_t position) const {
  const std::int64_t block = config().block, dim = config().dim, rows = position % block;
  const bool first_block = position < block;
  NamedShapes shapes;
  for (const TransformerLayer& layer : layers_) {
    const auto add = [&](const char* part, std::int64_t count, std::int64_t width) {
      shapes.emplace_back(layer.path + part, Shape{batch, count, width});
    };
    if (!first_block) add(".past", block, 2 * dim);
    if (!first_block && keeps_rows())
      for (const char* part : {".half", ".spread"}) add(part, block, dim);
    if (rows == 0) continue;
    for (const char* part : {".x", ".h"}) add(part, rows, 2 * dim);
    if (!keeps_rows()) continue;
    add(".rows_h", rows, dim);
    if (first_block) add(".rows_x", rows, dim);
  }
  return shapes;
}

Tensor BlockRecurrence::stream_rows(const WindowLayer& layer, const std::string& name, const Tensor& x,
                                    State& state) const {
  const Tensor* so_far = state.find(name + ".x");
  const std::int64_t done = so_far == nullptr ? 0 : so_far->dim(1);
  const Tensor* half = state.find(name + ".half");
  const Tensor rows = half == nullptr ? x : x + narrow(*half, 1, done, x.dim(1));
  const auto [query, own] = layer.query_key_value(rows);
  const Tensor own_all = appended(state, name + ".x", own);
  const Tensor* past = state.find(name + ".past");
  const Tensor h = layer.finish(rows, query, past == nullptr ? Tensor() : *past, own_all, 0);
  const auto [h_query, h_own] = layer.query_key_value(h);
  const Tensor h_all = appended(state, name + ".h", h_own);
  if (keeps_rows()) {
    if (past == nullptr) state.set(name + ".rows_x", appended(state, name + ".rows_x", x));
    state.set(name + ".rows_h", appended(state, name + ".rows_h", h));
  }
  state.set(name + ".x", own_all);
  state.set(name + ".h", h_all);
  return layer.finish(h, h_query, {}, h_all, 0);
}

Tensor BlockRecurrence::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  const std::int64_t first = check_stream(tokens, state), block = config().block;
  const Tensor x = embed(tokens, first, false);
  const DropoutSite off;
  std::vector<WindowLayer> layers;
  layers.reserve(layers_.size());
  for (const TransformerLayer& layer : layers_) layers.emplace_back(layer, off);

  State next = state;
  std::vector<Tensor> outputs;
  const std::int64_t time = tokens.dim(1);
  for (std::int64_t at = 0; at < time;) {
    const std::int64_t length = std::min(time - at, block - (first + at) % block);
    Tensor rows = raw::copy(raw::narrow(x, 1, at, length));
    for (std::size_t i = 0; i < layers.size(); ++i) rows = stream_rows(layers[i], layer_name(i), rows, next);
    outputs.push_back(rows);
    at += length;
    if ((first + at) % block != 0) continue;
    Tensor settled;
    for (std::size_t i = 0; i < layers.size(); ++i)
      settled = end_block(layers[i], layer_name(i), settled, next);
  }
  next.set("position", Tensor::from(std::vector<std::int64_t>{first + time}, {1}));
  const Tensor logits = head(outputs.size() == 1 ? outputs[0] : concat(outputs, 1), false).logits();
  state = std::move(next);
  return logits;
}

}  // namespace eddy
