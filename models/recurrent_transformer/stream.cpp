// Streaming of the recurrent transformers: the same numbers token by token, in portions of any size.
//
//   model              what each layer keeps                                          size
//   regular            keys and values of all tokens so far                           grows
//   unit_forget        key and value of h_{t-1}                                       constant
//   block_forget       keys and values of h_{i-1}, of x_i so far and of h_i so far    constant
//   block_accumulate   the same, p/2, what becomes the next p, and the rows h_i       constant
//
// Inside a block each layer answers as if the sequence ended at the current token: h_i, then y_i = T(h_i).
// When the block is complete, end_block turns h_i into the past of the next block.
#include <algorithm>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/recurrent_transformer/block_recurrence.h"
#include "models/row_cache.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

std::int64_t position_of(const State& state) {
  return state.empty() ? 0 : state.count("position");
}

State with_position(const State& state, std::int64_t position) {
  State moved = state;
  moved.set_counts("position", {position});
  return moved;
}

// What the state holds under `name`, if anything, followed by `rows` on the axis of positions.
Tensor appended(const State& state, const std::string& name, const Tensor& rows) {
  const Tensor* before = state.find(name);
  return before == nullptr ? rows : concat({*before, rows}, 1);
}

}  // namespace

std::int64_t RecurrentTransformer::check_stream(const Tensor& tokens, const State& state) const {
  const std::int64_t position = position_of(state);
  check_tokens(tokens);
  check_positions(position + tokens.dim(1));
  if (state.empty()) return 0;
  if (position < 1)
    fail<ValueError>("{}: the state's position is {} (at least 1; an empty state begins a stream)",
                     config().model, position);
  StateLayout layout = stream_layout(tokens.dim(0), position);
  layout.push_back({.name = "position", .shape = {1}, .kind = StateTensor::Kind::count});
  check_state(state, layout);
  return position;
}

Tensor RecurrentTransformer::stream_from_call(const Tensor& tokens, State& state) const {
  check_tokens(tokens);
  check_state(state, whole_layout(tokens.dim(0)));
  const DropoutSite no_dropout;
  const CarriedRows carried{state, {}, false, {}, {}};
  State opened;
  for (const TransformerLayer& layer : layers_) open_layer(opened, WindowLayer(layer, no_dropout), carried);
  // Without a position table the place in a block is all that counts.
  opened.set_counts("position", {config().block});
  const Tensor logits = stream(tokens, opened);
  state = std::move(opened);
  return logits;
}

std::int64_t RecurrentTransformer::remaining_context(const State& state) const {
  return config().positions ? config().context - position_of(state) : -1;
}

std::optional<State> RecurrentTransformer::stream_after(const State& state, std::int64_t length) const {
  const std::int64_t position = position_of(state), block = config().block;
  if (position == 0) return std::nullopt;
  // A state that has a finished block keeps one.
  const std::int64_t blocks = position < block ? 0 : std::max<std::int64_t>(1, length / block);
  return with_position(state, blocks * block + position % block);
}

std::optional<State> RegularTransformer::stream_after(const State& state, std::int64_t length) const {
  if (state.empty()) return std::nullopt;
  State later = with_position(state, length);
  for (const StateTensor& cache : stream_layout(1, length))
    later.set(cache.name, raw::narrow(with_room(state.get(cache.name), 1, length + 1), 1, 0, length + 1));
  return later;
}

StateLayout RegularTransformer::stream_layout(std::int64_t batch, std::int64_t position) const {
  StateLayout layout;
  for (const TransformerLayer& layer : layers_)
    for (const char* part : {".k", ".v"})
      layout.push_back({.name = layer.path + part,
                        .shape = {batch, position, config().dim},
                        .kind = StateTensor::Kind::rows,
                        .growing_axis = 1});
  return layout;
}

Tensor RegularTransformer::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  const std::int64_t first = check_stream(tokens, state);
  const std::int64_t batch = tokens.dim(0), time = tokens.dim(1), dim = config().dim, heads = config().heads;
  Tensor y = embed(tokens, first, false);
  const DropoutSite no_dropout;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const TransformerLayer& layer = layers_[i];
    const std::string& name = layer.path;
    const ScopeGuard scope(name);
    const std::int64_t room = std::max(config().context, time);
    if (first == 0)
      for (const char* part : {".k", ".v"})
        state.set(name + part, Tensor::zeros({batch, room, dim}, y.dtype(), y.device()));
    const Tensor qkv = layer.placed(layer.wqkv(layer.attn_norm(y)), 2 * heads, first);
    const auto heads_of = [&](const Tensor& rows) {
      return raw::reshape(rows, {batch, rows.dim(1), heads, dim / heads});
    };
    const auto extended = [&](const char* which, int part) {
      state.set(name + which, with_room(state.get(name + which), 1, first + time));
      const RowCache cache(state.get(name + which));
      cache.put(first, raw::narrow(qkv, 2, part * dim, dim));
      return heads_of(cache.rows(0, first + time));
    };
    AttentionOptions options;
    options.causal = true;
    options.precision = params().matmul_precision();
    Tensor attended;
    {
      const ScopeGuard inside("attn");
      attended = attention_bthd(heads_of(raw::narrow(qkv, 2, 0, dim)), extended(".k", 1), extended(".v", 2),
                                options);
    }
    y = layer.mlp(y, layer.wo(raw::reshape(attended, {batch, time, dim})), no_dropout, 0);
  }
  state.set_counts("position", {first + time});
  return head(y, false).logits();
}

StateLayout UnitForget::stream_layout(std::int64_t batch, std::int64_t) const {
  StateLayout layout;
  for (const TransformerLayer& layer : layers_)
    for (const char* part : {".k", ".v"})
      layout.push_back({.name = layer.path + part, .shape = {batch, config().dim}});
  return layout;
}

std::optional<std::vector<std::int64_t>> UnitForget::stream_signature(const State& state) const {
  if (config().positions) return std::nullopt;
  return std::vector<std::int64_t>{position_of(state) > 0 ? 1 : 0};
}

void UnitForget::open_layer(State& stream, const WindowLayer& layer, const CarriedRows& carried) const {
  const Tensor past = carried.past(layer, params().activations());
  const std::int64_t batch = past.dim(0), dim = config().dim;
  for (const auto& [part, from] : {std::pair{".k", std::int64_t{0}}, std::pair{".v", dim}})
    stream.set(layer.layer.path + part,
               raw::reshape(raw::copy(raw::narrow(past, 2, from, dim)), {batch, dim}));
}

Tensor UnitForget::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  if (is_of_call(state)) return stream_from_call(tokens, state);
  const std::int64_t first = check_stream(tokens, state);
  Tensor y = embed(raw::copy(raw::transpose(tokens, 0, 1)), first, true);
  const DropoutSite no_dropout;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::string& name = layers_[i].path;
    Tensor key = first == 0 ? Tensor() : state.get(name + ".k");
    Tensor value = first == 0 ? Tensor() : state.get(name + ".v");
    y = run_fast(layers_[i], y, y.dim(0), no_dropout, nullptr, &key, &value);
    state.set(name + ".k", key);
    state.set(name + ".v", value);
  }
  state.set_counts("position", {first + tokens.dim(1)});
  return head(y, true).logits();
}

std::optional<std::vector<std::int64_t>> BlockRecurrence::stream_signature(const State& state) const {
  if (config().positions) return std::nullopt;
  return std::vector<std::int64_t>{position_of(state) % config().block};
}

StateLayout BlockRecurrence::stream_layout(std::int64_t batch, std::int64_t position) const {
  const std::int64_t block = config().block, dim = config().dim, rows = position % block;
  const bool first_block = position < block;
  StateLayout layout;
  for (const TransformerLayer& layer : layers_) {
    const auto add = [&](const char* part, std::int64_t count, std::int64_t width) {
      layout.push_back({.name = layer.path + part, .shape = {batch, count, width}});
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
  return layout;
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
  name_value("state", h);
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
  if (is_of_call(state)) return stream_from_call(tokens, state);
  const std::int64_t first = check_stream(tokens, state), block = config().block;
  const Tensor x = embed(tokens, first, false);
  const DropoutSite no_dropout;
  std::vector<WindowLayer> layers;
  layers.reserve(layers_.size());
  for (const TransformerLayer& layer : layers_) layers.emplace_back(layer, no_dropout);

  State next = state;
  std::vector<Tensor> outputs;
  const std::int64_t time = tokens.dim(1);
  for (std::int64_t at = 0; at < time;) {
    const std::int64_t length = std::min(time - at, block - (first + at) % block);
    Tensor rows = raw::copy(raw::narrow(x, 1, at, length));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const ScopeGuard scope(layers_[i].path);
      rows = stream_rows(layers[i], layers_[i].path, rows, next);
    }
    outputs.push_back(rows);
    at += length;
    if ((first + at) % block != 0) continue;
    Tensor final_rows;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const ScopeGuard scope(layers_[i].path);
      final_rows = end_block(layers[i], layers_[i].path, final_rows, next);
    }
  }
  next.set_counts("position", {first + time});
  const Tensor logits = head(outputs.size() == 1 ? outputs[0] : concat(outputs, 1), false).logits();
  state = std::move(next);
  return logits;
}

void BlockForget::open_layer(State& stream, const WindowLayer& layer, const CarriedRows& carried) const {
  stream.set(layer.layer.path + ".past", carried.past(layer, params().activations()));
}

void BlockAccumulate::open_layer(State& stream, const WindowLayer& layer, const CarriedRows& carried) const {
  const Window window = carried_window(layer, carried, params().activations());
  stream.set(layer.layer.path + ".half", window.half);
  stream.set(layer.layer.path + ".past", window.past);
  stream.set(layer.layer.path + ".spread", window.spread);
}

Tensor BlockForget::end_block(const WindowLayer&, const std::string& name, const Tensor&,
                              State& state) const {
  state.set(name + ".past", state.get(name + ".h"));
  state.erase(name + ".x");
  state.erase(name + ".h");
  return {};
}

// The older half of the next window is p/2 + h with this block's h; its output y is this block's output, now
// that another block follows. Layers above the first have so far seen the closing outputs of this block: they
// run the block again on `x`, from the state before it.
Tensor BlockAccumulate::end_block(const WindowLayer& layer, const std::string& name, const Tensor& x,
                                  State& state) const {
  if (x.defined()) {
    for (const char* part : {".x", ".h", ".rows_x", ".rows_h"}) state.erase(name + part);
    static_cast<void>(stream_rows(layer, name, x, state));
  }
  const Tensor h = state.get(name + ".rows_h");
  const Tensor* carried = state.find(name + ".spread");
  const Tensor half =
      (carried != nullptr ? *carried : state.get(name + ".rows_x")) * config().accumulate_factor;
  const Tensor older = half + h;
  const Tensor past = layer.key_value(older);
  const Tensor y = layer.output(older, past, 0, 0);
  for (const char* part : {".x", ".h", ".rows_x", ".rows_h"}) state.erase(name + part);
  state.set(name + ".half", half);
  state.set(name + ".past", past);
  state.set(name + ".spread", spreads_output() ? y : h);
  return y;
}

}  // namespace eddy
