// Streaming: the same numbers token by token.
//
//   llama          keys and values of all tokens: it grows
//   llama_window   keys and values of the last tokens, in 2 window rows
//   memory_llama   keys and values | of the memory | of the unfinished chunk |, and that chunk's outputs O;
//                  after the chunk's last token O becomes the memory (refresh_memory)
#include <algorithm>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "models/row_cache.h"
#include "ops/ops.h"

namespace eddy {
namespace {

// A stream's tensor [layers, batch, rows, ...], to be written in place.
RowCache cache_of(State& state, const char* name) {
  return {state, name, 2};
}

}  // namespace

StateLayout LlamaModel::cache_layout(std::int64_t batch, std::int64_t rows) const {
  StateLayout layout;
  for (const char* name : {"keys", "values"})
    layout.push_back({.name = name,
                      .shape = {config().layers, batch, rows, config().kv_heads, config().head_dim},
                      .kind = StateTensor::Kind::rows,
                      .batch_axis = 1});
  return layout;
}

std::optional<State> CausalLlama::stream_after(const State& state, std::int64_t length) const {
  if (windowed() || state.empty()) return std::nullopt;
  State later = state;
  for (const StateTensor& cache : cache_layout(state.get("keys").dim(1), length + 1)) {
    // Of its own, since a stream copies what has other owners.
    const Tensor& held = state.get(cache.name);
    const Tensor rows = Tensor::zeros(cache.shape, held.dtype(), held.device());
    const std::int64_t kept = std::min(held.dim(2), length + 1);
    raw::copy_into(raw::narrow(rows, 2, 0, kept), raw::narrow(held, 2, 0, kept));
    later.set(cache.name, rows);
  }
  for (const char* count : {"position", "filled"}) later.set_counts(count, {length});
  return later;
}

Tensor CausalLlama::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  check_tokens(tokens);
  const std::int64_t batch = tokens.dim(0), time = tokens.dim(1);
  std::int64_t rows = windowed() ? 2 * config().window : std::max(config().context, time);
  std::int64_t position = 0, filled = 0;
  if (!state.empty()) {
    StateLayout layout = cache_layout(batch, windowed() ? rows : 1);
    if (!windowed())
      for (StateTensor& cache : layout) cache.growing_axis = 2;
    for (const char* name : {"position", "filled"})
      layout.push_back({.name = name, .shape = {1}, .kind = StateTensor::Kind::count});
    check_state(state, layout);
    rows = std::min(state.get("keys").dim(2), state.get("values").dim(2));
    position = state_count(state, "position", std::int64_t{1} << 52);
    filled = state_count(state, "filled", std::min(position, rows));
  }

  const Tensor x = embed(tokens);
  if (state.empty()) state = zeros_of(cache_layout(batch, rows));
  if (!windowed()) {
    for (const char* name : {"keys", "values"}) state.set(name, with_room(state.get(name), 2, filled + time));
    rows = std::max(rows, filled + time);
  }
  const RowCache all_keys = cache_of(state, "keys"), all_values = cache_of(state, "values");
  const Tensor logits = Tensor::empty({batch, time, config().n_out}, x.dtype(), x.device());
  const DropoutSite no_dropout;
  // The first query of a piece sees window - 1 rows before it. Pieces are at most a window long, so twice the
  // window has room for both.
  const std::int64_t longest = windowed() ? config().window : time;
  for (std::int64_t at = 0; at < time; at += longest) {
    const std::int64_t length = std::min(longest, time - at);
    if (filled + length > rows) {
      const std::int64_t kept = config().window - 1;
      for (const RowCache& cache : {all_keys, all_values}) cache.keep(filled - kept, filled);
      filled = kept;
    }
    const std::int64_t first = windowed() ? std::max<std::int64_t>(filled - (config().window - 1), 0) : 0;
    AttentionOptions options;
    options.causal = true;
    options.precision = params().matmul_precision();
    if (windowed()) options.band = {0, config().window - 1};
    Tensor y = raw::narrow(x, 1, at, length);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const LlamaLayer& layer = layers_[i];
      const ScopeGuard scope(layer.path);
      const Tensor normed = layer.attn_norm(y);
      const auto number = static_cast<std::int64_t>(i);
      const RowCache keys = all_keys.layer(number), values = all_values.layer(number);
      keys.put(filled, rotary_bthd(layer.key(normed), position + at, config().rope_theta));
      values.put(filled, layer.value(normed));
      const Tensor attended =
          layer.attend(rotary_bthd(layer.query(normed), position + at, config().rope_theta),
                       keys.rows(first, filled + length), values.rows(first, filled + length), options);
      y = layer.finish(y, attended, no_dropout, 0);
    }
    raw::copy_into(raw::narrow(logits, 1, at, length), head(y).logits());
    filled += length;
  }
  state.set_counts("position", {position + time});
  state.set_counts("filled", {filled});
  return logits;
}

StateLayout MemoryLlama::state_layout(std::int64_t batch) const {
  return {
      {.name = "memory", .shape = {config().layers, batch, config().chunk, config().dim}, .batch_axis = 1}};
}

int MemoryLlama::state_row_axis(const std::string& name) const {
  for (const StateTensor& part : state_layout(1))
    if (part.name == name) return part.batch_axis;
  return 0;
}

StateLayout MemoryLlama::stream_layout(std::int64_t batch) const {
  StateLayout layout = state_layout(batch);
  for (const StateTensor& cache : cache_layout(batch, 2 * config().chunk)) layout.push_back(cache);
  layout.push_back({.name = "filled", .shape = {1}, .kind = StateTensor::Kind::count});
  return layout;
}

// Checks a state, and turns an empty one or one of `forward` into a stream's.
void MemoryLlama::open_stream(State& state, std::int64_t batch) const {
  if (state.find("filled") != nullptr) {
    check_state(state, stream_layout(batch));
    static_cast<void>(state_count(state, "filled", config().chunk - 1));
    return;
  }
  if (!state.empty()) check_state(state, state_layout(batch));
  State opened = zeros_of(stream_layout(batch));
  const Tensor& memory = opened.get("memory");
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Tensor to = raw::select(memory, 0, static_cast<std::int64_t>(i));
    raw::cast_into(to, state.empty() ? raw::expand(initial_memory(layers_[i]), to.shape())
                                     : raw::select(state.get("memory"), 0, static_cast<std::int64_t>(i)));
  }
  opened.set_counts("filled", {0});
  refresh_memory(opened);
  state = std::move(opened);
}

// Writes keys and values of the state's `memory` into the first rows of its `keys` and `values`.
void MemoryLlama::refresh_memory(State& state) const {
  const DropoutSite no_dropout;
  const RowCache keys = cache_of(state, "keys"), values = cache_of(state, "values");
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const ScopeGuard scope(layers_[i].path);
    const auto number = static_cast<std::int64_t>(i);
    const Tensor memory = raw::select(state.get("memory"), 0, number);
    const KeyValue rows = memory_rows(layers_[i], activation(memory), no_dropout, 0);
    keys.layer(number).put(0, rows.key);
    values.layer(number).put(0, rows.value);
  }
}

// The outputs of all layers for embedded tokens x of one chunk, which has `filled` tokens before them.
Tensor MemoryLlama::stream_piece(const Tensor& x, State& state, std::int64_t filled) const {
  const std::int64_t length = x.dim(1), position = config().chunk + filled;
  const DropoutSite no_dropout;
  AttentionOptions options;
  options.causal = true;
  options.precision = params().matmul_precision();
  const RowCache all_keys = cache_of(state, "keys"), all_values = cache_of(state, "values"),
                 outputs = cache_of(state, "memory");
  Tensor y = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LlamaLayer& layer = layers_[i];
    const ScopeGuard scope(layer.path);
    const auto number = static_cast<std::int64_t>(i);
    const Tensor normed = layer.attn_norm(y);
    const RowCache keys = all_keys.layer(number), values = all_values.layer(number);
    keys.put(position, rotary_bthd(layer.key(normed), position, config().rope_theta));
    values.put(position, layer.value(normed));
    const Tensor attended =
        layer.attend(rotary_bthd(layer.query(normed), position, config().rope_theta),
                     keys.rows(0, position + length), values.rows(0, position + length), options);
    outputs.layer(number).put(filled, raw::reshape(attended, x.shape()));
    y = layer.finish(y, attended, no_dropout, 0);
  }
  return y;
}

Tensor MemoryLlama::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  check_tokens(tokens);
  const std::int64_t batch = tokens.dim(0), time = tokens.dim(1), chunk = config().chunk;
  const Tensor x = embed(tokens);
  open_stream(state, batch);
  std::int64_t filled = state.count("filled");
  const Tensor logits = Tensor::empty({batch, time, config().n_out}, x.dtype(), x.device());
  for (std::int64_t at = 0; at < time;) {
    const std::int64_t length = std::min(chunk - filled, time - at);
    const Tensor y = stream_piece(raw::narrow(x, 1, at, length), state, filled);
    raw::copy_into(raw::narrow(logits, 1, at, length), head(y).logits());
    filled += length;
    at += length;
    if (filled < chunk) continue;
    refresh_memory(state);
    filled = 0;
  }
  state.set_counts("filled", {filled});
  return logits;
}

}  // namespace eddy
