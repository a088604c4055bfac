// Memory attention over whole segments: `forward`, and its fast form, layer by layer (run_fast):
//
//   before the loop   queries, keys and values of all chunks, rotated          one product each
//   in the loop       E = evolve(M);  O = attention of one chunk;  M = O       over chunks
//   after the loop    Wo and the MLP of all chunks                             at once
//
// The literal form, chunk by chunk, is run_literal in literal.cpp; streaming is in stream.cpp.
#include <algorithm>
#include <memory>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// The memory for every row of the batch, a view where rows share one.
Tensor expand_batch(const Tensor& memory, std::int64_t batch) {
  return memory.dim(0) == batch ? memory : expand(memory, memory.shape().with(0, batch));
}

}  // namespace

Tensor MemoryLlama::initial_memory(const LlamaLayer& layer) const {
  const Shape shape{1, config().chunk, config().dim};
  if (layer.memory->init.defined()) return activation(reshape(layer.memory->init, shape));
  return Tensor::zeros(shape, params().activations(), layer.wq.weight.device());
}

std::vector<Tensor> MemoryLlama::first_memories(const ForwardInput& input) const {
  const std::int64_t batch = input.tokens.dim(0), chunk = config().chunk;
  check_start(input.start, batch, 1);
  const Tensor flags = start_flags(input.start, 0);
  Tensor carried;
  if (!input.state.empty()) {
    // A batch of another size is another set of sequences: they begin with the initial memory.
    const Tensor& given = input.state.get("memory");
    const std::int64_t rows = given.rank() == 4 ? given.dim(1) : batch;
    const bool streamed = input.state.find("filled") != nullptr;
    check_state(input.state, streamed ? stream_layout(rows) : state_layout(rows));
    carried = detach(given);
    if (streamed) {
      const std::int64_t filled = state_count(input.state, "filled", chunk - 1);
      if (filled > 0)
        fail<ValueError>(
            "{}: the state stands {} tokens into a chunk of {} (go on with `stream` to the chunk's end)",
            config().model, filled, chunk);
    }
    if (rows != batch) carried = Tensor();
  }
  if (input.dropout.training) check_length(input.tokens.dim(1), carried.defined());

  std::vector<Tensor> memories;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!carried.defined()) {
      memories.push_back(initial_memory(layers_[i]));
      continue;
    }
    const Tensor mine = activation(raw::select(carried, 0, static_cast<std::int64_t>(i)));
    memories.push_back(flags.defined() ? restart_rows(mine, initial_memory(layers_[i]), flags) : mine);
  }
  return memories;
}

KeyValue MemoryLlama::memory_rows(const LlamaLayer& layer, const Tensor& memory, const DropoutSite& drop,
                                  std::uint64_t call) const {
  const Tensor evolved = layer.memory->evolve(memory, drop, call);
  const KeyValue rows = layer.memory_rows(evolved);
  return {rotary_bthd(rows.key, 0, config().rope_theta), rows.value};
}

Tensor MemoryLlama::rotate_chunks(const Tensor& x) const {
  const std::int64_t chunk = config().chunk, time = x.dim(1), whole = time / chunk * chunk;
  if (whole == 0) return rotary_bthd(x, chunk, config().rope_theta);
  if (whole != time) {
    const std::vector<Tensor> parts = split(x, 1, {whole, time - whole});
    return concat({rotate_chunks(parts[0]), rotate_chunks(parts[1])}, 1);
  }
  const Shape folded{x.dim(0) * (time / chunk), chunk, x.dim(2), x.dim(3)};
  return reshape(rotary_bthd(reshape(x, folded), chunk, config().rope_theta), x.shape());
}

Tensor MemoryLlama::run_fast(const LlamaLayer& layer, const Tensor& x, const DropoutSite& drop,
                             Recompute recompute, Tensor& memory) const {
  const ScopeGuard scope(layer.path);
  const std::int64_t batch = x.dim(0), time = x.dim(1), chunk = config().chunk;
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(time / chunk), chunk);
  if (time % chunk != 0) lengths.push_back(time % chunk);

  // One split each, so that the gradient of all chunks is written once.
  const Tensor rows = layer.attn_norm(x);
  const std::vector<Tensor> queries = split(rotate_chunks(layer.query(rows)), 1, lengths),
                            keys = split(rotate_chunks(layer.key(rows)), 1, lengths),
                            values = split(layer.value(rows), 1, lengths);
  // A memory that all rows share evolves once; only dropout makes the rows differ.
  if (drop.active()) memory = contiguous(expand_batch(memory, batch));
  std::vector<Tensor> outputs;
  for (std::size_t t = 0; t < lengths.size(); ++t) {
    outputs.push_back(recomputed(recompute == Recompute::block,
                                 [this, &layer, drop, t, batch](const std::vector<Tensor>& in) {
                                   const KeyValue read = memory_rows(layer, in[0], drop, t);
                                   AttentionOptions options = layer.chunk_attention(drop, t);
                                   options.past_keys = expand_batch(read.key, batch);
                                   options.past_values = expand_batch(read.value, batch);
                                   return layer.attend(in[1], in[2], in[3], options);
                                 },
                                 {memory, queries[t], keys[t], values[t]}));
    if (lengths[t] != chunk) break;
    memory = reshape(outputs.back(), Shape{batch, chunk, config().dim});
    name_value("state", memory);
    if (value_is(config().detach, blockwise_recurrent::Detach::chunk)) memory = detach(memory);
  }
  return layer.finish(x, concat(outputs, 1), drop, 0);
}

void MemoryLlama::check_length(std::int64_t time, bool carried) const {
  if (carried && time % config().chunk != 0)
    fail<ValueError>(
        "{}: training carries the memory over segments of {} tokens in chunks of {}: the last {} would be "
        "lost (segments of whole chunks)",
        config().model, time, config().chunk, time % config().chunk);
}

ForwardOutput MemoryLlama::forward(const ForwardInput& input) const {
  check_tokens(input.tokens);
  const std::int64_t batch = input.tokens.dim(0), time = input.tokens.dim(1), chunk = config().chunk;
  const DropoutSite drop{input.dropout, config().dropout};
  std::vector<Tensor> memories = first_memories(input);
  Tensor x = drop(embed(input.tokens), "embed.drop");
  if (input.literal) {
    for (Tensor& memory : memories) memory = contiguous(expand_batch(memory, batch));
    std::vector<Tensor> outputs;
    for (std::int64_t at = 0; at < time; at += chunk) {
      Tensor y = narrow(x, 1, at, std::min(chunk, time - at));
      for (std::size_t i = 0; i < layers_.size(); ++i)
        y = run_literal(layers_[i], y, drop, static_cast<std::uint64_t>(at / chunk), memories[i]);
      outputs.push_back(y);
    }
    x = concat(outputs, 1);
  } else {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto after = std::make_shared<Tensor>();
      x = recomputed(input.recompute != Recompute::none,
                     [this, &layer = layers_[i], drop, after,
                      recompute = input.recompute](const std::vector<Tensor>& in) {
                       Tensor memory = in[1];
                       const Tensor y = run_fast(layer, in[0], drop, recompute, memory);
                       *after = memory;
                       return y;
                     },
                     {x, memories[i]});
      memories[i] = *after;
    }
  }

  const Tensor next =
      Tensor::empty({config().layers, batch, chunk, config().dim}, params().values().dtype(), x.device());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Tensor to = raw::select(next, 0, static_cast<std::int64_t>(i));
    raw::cast_into(to, raw::expand(memories[i], to.shape()));
  }
  State state;
  state.set("memory", next);
  return {input, head(x), state};
}

}  // namespace eddy
