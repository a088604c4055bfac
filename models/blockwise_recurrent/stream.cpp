// Streaming: the same numbers token by token.
//
//   llama          keys and values of all tokens, up to `context`
//   llama_window   keys and values of the last tokens, in 2 window rows
//   memory_llama   keys and values | of the memory | of the unfinished chunk |, and that chunk's outputs O;
//                  after the chunk's last token O becomes the memory (refresh_memory)
#include <algorithm>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

Tensor counter(std::int64_t value) {
  return Tensor::from(std::vector<std::int64_t>{value}, {1});
}

// Makes sure that the state's tensor may be written in place: replaces it by a copy when another handle sees
// its bytes. So copies of a state continue independently, and a backward finds what its forward saw.
void make_exclusive(State& state, const char* name) {
  if (!state.get(name).exclusive()) state.set(name, raw::copy(state.get(name)));
}

Tensor of_layer(const State& state, const char* name, std::size_t layer) {
  return raw::select(state.get(name), 0, static_cast<std::int64_t>(layer));
}

}  // namespace

std::int64_t CausalLlama::stream_room(const State& state) const {
  if (windowed()) return -1;
  return config().context - (state.empty() ? 0 : state_count(state, "position", config().context));
}

Tensor CausalLlama::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  check_tokens(tokens);
  const std::int64_t batch = tokens.dim(0), time = tokens.dim(1);
  const std::int64_t rows = windowed() ? 2 * config().window : config().context;
  const Shape shape{config().layers, batch, rows, config().kv_heads, config().head_dim};
  std::int64_t position = 0, filled = 0;
  if (!state.empty()) {
    position = state_count(state, "position", std::int64_t{1} << 52);
    filled = state_count(state, "filled", std::min(position, rows));
    for (const char* name : {"keys", "values"})
      static_cast<void>(state_part(state, name, shape, params().activations()));
  }
  if (!windowed() && position + time > config().context)
    fail<ValueError>("{}: {} positions and a context of {} (the cache is full)", config().model,
                     position + time, config().context);

  const Tensor x = embed(tokens);
  if (state.empty())
    for (const char* name : {"keys", "values"}) state.set(name, Tensor::zeros(shape, x.dtype(), x.device()));
  for (const char* name : {"keys", "values"}) make_exclusive(state, name);
  const Tensor logits = Tensor::empty({batch, time, config().n_out}, x.dtype(), x.device());
  const DropoutSite no_dropout;
  // The first query of a piece sees window - 1 rows before it. Pieces are at most a window long, so twice the
  // window has room for both.
  const std::int64_t longest = windowed() ? config().window : time;
  for (std::int64_t at = 0; at < time; at += longest) {
    const std::int64_t length = std::min(longest, time - at);
    if (filled + length > rows) {
      const std::int64_t kept = config().window - 1;
      for (const char* name : {"keys", "values"}) {
        const Tensor& cache = state.get(name);
        raw::copy_into(raw::narrow(cache, 2, 0, kept), raw::copy(raw::narrow(cache, 2, filled - kept, kept)));
      }
      filled = kept;
    }
    const std::int64_t first = windowed() ? std::max<std::int64_t>(filled - (config().window - 1), 0) : 0;
    AttentionOptions options;
    options.causal = true;
    if (windowed()) options.band = {0, config().window - 1};
    Tensor y = raw::narrow(x, 1, at, length);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const LlamaLayer& layer = layers_[i];
      const ScopeGuard scope(layer.path);
      const Tensor normed = layer.attn_norm(y);
      const Tensor keys = of_layer(state, "keys", i), values = of_layer(state, "values", i);
      raw::copy_into(raw::narrow(keys, 1, filled, length),
                     rotary(layer.key(normed), position + at, config().rope_theta));
      raw::copy_into(raw::narrow(values, 1, filled, length), layer.value(normed));
      const std::int64_t in_sight = filled + length - first;
      const Tensor attended =
          attention(rotary(layer.query(normed), position + at, config().rope_theta),
                    raw::narrow(keys, 1, first, in_sight), raw::narrow(values, 1, first, in_sight), options);
      y = layer.finish(y, attended, no_dropout, 0);
    }
    raw::copy_into(raw::narrow(logits, 1, at, length), head(y).logits());
    filled += length;
  }
  state.set("position", counter(position + time));
  state.set("filled", counter(filled));
  return logits;
}

// Checks a state, and turns an empty one or one of `forward` into a stream's.
void MemoryLlama::open_stream(State& state, std::int64_t batch) const {
  const Shape memories{config().layers, batch, config().chunk, config().dim};
  const Shape rows{config().layers, batch, 2 * config().chunk, config().kv_heads, config().head_dim};
  const Tensor& weight = layers_[0].wq.weight;
  if (state.find("filled") != nullptr) {
    static_cast<void>(state_count(state, "filled", config().chunk - 1));
    static_cast<void>(state_part(state, "memory", memories, weight.dtype()));
    for (const char* name : {"keys", "values"})
      static_cast<void>(state_part(state, name, rows, params().activations()));
    for (const char* name : {"memory", "keys", "values"}) make_exclusive(state, name);
    return;
  }
  Tensor memory;
  if (state.empty()) {
    memory = Tensor::empty(memories, weight.dtype(), weight.device());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Tensor to = raw::select(memory, 0, static_cast<std::int64_t>(i));
      raw::cast_into(to, raw::expand(initial_memory(layers_[i]), to.shape()));
    }
  } else {
    memory = raw::copy(state_part(state, "memory", memories, weight.dtype()));
  }
  State opened;
  opened.set("memory", memory);
  for (const char* name : {"keys", "values"})
    opened.set(name, Tensor::zeros(rows, params().activations(), weight.device()));
  opened.set("filled", counter(0));
  refresh_memory(opened);
  state = opened;
}

// Writes keys and values of the state's `memory` into the first rows of its `keys` and `values`.
void MemoryLlama::refresh_memory(const State& state) const {
  const DropoutSite no_dropout;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const ScopeGuard scope(layers_[i].path);
    const KeyValue rows = memory_rows(layers_[i], activation(of_layer(state, "memory", i)), no_dropout, 0);
    raw::copy_into(raw::narrow(of_layer(state, "keys", i), 1, 0, config().chunk), rows.key);
    raw::copy_into(raw::narrow(of_layer(state, "values", i), 1, 0, config().chunk), rows.value);
  }
}

// The outputs of all layers for embedded tokens x of one chunk, which has `filled` tokens before them.
Tensor MemoryLlama::stream_piece(const Tensor& x, const State& state, std::int64_t filled) const {
  const std::int64_t length = x.dim(1), position = config().chunk + filled;
  const DropoutSite no_dropout;
  AttentionOptions options;
  options.causal = true;
  Tensor y = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LlamaLayer& layer = layers_[i];
    const ScopeGuard scope(layer.path);
    const Tensor normed = layer.attn_norm(y);
    const Tensor keys = raw::narrow(of_layer(state, "keys", i), 1, 0, position + length),
                 values = raw::narrow(of_layer(state, "values", i), 1, 0, position + length);
    raw::copy_into(raw::narrow(keys, 1, position, length),
                   rotary(layer.key(normed), position, config().rope_theta));
    raw::copy_into(raw::narrow(values, 1, position, length), layer.value(normed));
    const Tensor attended =
        attention(rotary(layer.query(normed), position, config().rope_theta), keys, values, options);
    raw::cast_into(raw::narrow(of_layer(state, "memory", i), 1, filled, length),
                   raw::reshape(attended, x.shape()));
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
  std::int64_t filled = state.get("filled").item_int();
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
  state.set("filled", counter(filled));
  return logits;
}

}  // namespace eddy
