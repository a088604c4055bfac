// Streaming of the Block-Recurrent family: the same numbers token by token. A token sees the ring of the last
// keys and the states from before its block; after the last token of a block the cells update the states.
//
//   layers.i.k, .v   | previous block | current block ->     2 window rows; a complete block moves forward
//   layers.i.state   c_t; its keys and values (state_k, state_v), which the whole block reads, are made once
//
// `stream` cuts its tokens at the ends of blocks and runs each piece through the whole stack at once.
#include <algorithm>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/block_recurrent/block_recurrent.h"
#include "models/row_cache.h"
#include "ops/ops.h"

namespace eddy {

// Rows [0, window) of k and v are the previous block, the others the current one.
struct BlockRecurrent::Stream {
  struct Layer {
    Tensor k, v;  // [batch, 2 window, heads, head_dim]
    Tensor state;
    StateRead read;  // of `state`, made once per block
    std::optional<MemoryEntries> memory;
    Tensor segment_k,
        segment_v;  // [batch, segment, heads, head_dim]: what the memory gets at the segment's end
  };
  std::int64_t position = 0;  // tokens so far
  std::vector<Layer> layers;
};

BlockRecurrent::Stream BlockRecurrent::open_stream(const State& state, std::int64_t batch) const {
  Stream stream;
  stream.layers.resize(layers_.size());
  const bool streamed = state.find("position") != nullptr;
  StateLayout layout = stream_layout(batch);
  if (streamed) {
    check_state(state, layout);
    stream.position = state.count("position");
  } else {  // the rows; the rest comes from the carry
    std::erase_if(layout, [](const StateTensor& part) { return part.kind != StateTensor::Kind::rows; });
  }
  const State rows = streamed ? state : zeros_of(layout);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::string& name = layers_[i].path;
    Stream::Layer& own = stream.layers[i];
    own.k = rows.get(name + ".k");
    own.v = rows.get(name + ".v");
    if (layers_[i].memory) {
      own.segment_k = rows.get(name + ".segment_k");
      own.segment_v = rows.get(name + ".segment_v");
    }
    if (!streamed) continue;
    if (layers_[i].cell) {
      own.state = state.get(name + ".state");
      own.read = {state.get(name + ".state_k"), state.get(name + ".state_v")};
    }
    if (layers_[i].memory) own.memory = load_memory(state, name);
  }
  if (streamed) return stream;
  std::vector<Carry> carry = state.empty() ? cold_carry(batch) : load_carry(state, batch);
  if (!state.empty()) begin_segment(carry, {});
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Stream::Layer& own = stream.layers[i];
    if (carry[i].k.defined()) {
      RowCache(own.k).put(0, carry[i].k);
      RowCache(own.v).put(0, carry[i].v);
    }
    own.state = carry[i].state;
    own.memory = carry[i].memory;
  }
  read_states(stream);
  return stream;
}

void BlockRecurrent::read_states(Stream& stream) const {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i].cell) {
      const ScopeGuard scope(layers_[i].path);
      stream.layers[i].read =
          layers_[i].cell->read(activation(layers_[i].cell->add_ids(stream.layers[i].state)));
    }
}

// x [batch, time, dim] of tokens that lie in one block.
Tensor BlockRecurrent::run_piece(Stream& stream, const Tensor& x, const BlockCall& call) const {
  const std::int64_t window = config().window, time = x.dim(1), inside = stream.position % window;
  const bool has_previous = cached() || stream.position % config().segment >= window;
  const std::int64_t from = has_previous ? 0 : window;
  Tensor y = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const ScopeGuard scope(layers_[i].path);
    Stream::Layer& own = stream.layers[i];
    const TokenHeads heads = layers_[i].project(y, call);
    const RowCache keys(own.k), values(own.v);
    keys.put(window + inside, heads.k);
    values.put(window + inside, heads.v);
    if (own.memory) {
      const std::int64_t place = stream.position % config().segment;
      RowCache(own.segment_k).put(place, heads.k);
      RowCache(own.segment_v).put(place, heads.v);
    }
    const std::int64_t source = source_of(static_cast<std::int64_t>(i)), end = window + inside + time;
    y = layers_[i].finish(y, heads, {keys.rows(from, end), values.rows(from, end)},
                          source < 0 ? StateRead{} : stream.layers[static_cast<std::size_t>(source)].read,
                          own.memory ? &*own.memory : nullptr, call);
  }
  return rms_norm(y, call.final_norm, config().norm_eps);
}

// The position is at the end of a block; its keys are still the rows behind those of the previous block.
void BlockRecurrent::end_block(Stream& stream) const {
  const std::int64_t window = config().window, batch = stream.layers[0].k.dim(0);
  const bool segment_ends = stream.position % config().segment == 0;
  const bool has_previous = cached() || (stream.position - window) % config().segment >= window;
  const std::int64_t from = has_previous ? 0 : window;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const ScopeGuard scope(layers_[i].path);
    Stream::Layer& own = stream.layers[i];
    const RowCache keys(own.k), values(own.v);
    if (layers_[i].cell) {
      const RecurrentCell& cell = *layers_[i].cell;
      if (segment_ends && config().clear_state) {
        own.state = cell.initial(batch);
      } else {
        const StateHeads heads{own.read, cell.queries(activation(cell.add_ids(own.state)))};
        own.state = cell.update(own.state, heads, cell.scales(),
                                {keys.rows(from, 2 * window), values.rows(from, 2 * window)}, false);
      }
    }
    for (const RowCache& ring : {keys, values}) ring.keep(window, 2 * window);
    if (own.memory && segment_ends) own.memory = memory_write(*own.memory, own.segment_k, own.segment_v);
  }
  read_states(stream);
}

void BlockRecurrent::close_stream(const Stream& stream, State& state) const {
  State moved;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::string& name = layers_[i].path;
    const Stream::Layer& own = stream.layers[i];
    moved.set(name + ".k", own.k);
    moved.set(name + ".v", own.v);
    if (layers_[i].cell) {
      moved.set(name + ".state", own.state);
      moved.set(name + ".state_k", own.read.keys);
      moved.set(name + ".state_v", own.read.values);
    }
    if (!own.memory) continue;
    save_memory(moved, name, *own.memory);
    moved.set(name + ".segment_k", own.segment_k);
    moved.set(name + ".segment_v", own.segment_v);
  }
  moved.set_counts("position", {stream.position});
  state = std::move(moved);
}

// Without cached keys, with states that are cleared per segment, or with a memory that is written at the end
// of a segment, the place in the segment decides; else that in the window.
std::int64_t BlockRecurrent::stream_period() const {
  const bool by_segment = !cached() || config().clear_state || !config().memory_layers.empty();
  return by_segment ? config().segment : config().window;
}

std::optional<std::vector<std::int64_t>> BlockRecurrent::stream_signature(const State& state) const {
  const std::int64_t position = state.find("position") == nullptr ? 0 : state.count("position");
  return std::vector<std::int64_t>{position % stream_period()};
}

Tensor BlockRecurrent::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  check_tokens(tokens);
  const std::int64_t window = config().window, time = tokens.dim(1);
  const Tensor x = embedding_sum(embed_, tokens, {}, params().activations());
  Stream work = open_stream(state, tokens.dim(0));
  const BlockCall call = call_of({});
  std::vector<Tensor> outputs;
  for (std::int64_t at = 0; at < time;) {
    const std::int64_t piece = std::min(time - at, window - work.position % window);
    outputs.push_back(run_piece(work, narrow(x, 1, at, piece), call));
    at += piece;
    work.position += piece;
    if (work.position % window == 0) end_block(work);
  }
  close_stream(work, state);
  return Classifier{outputs.size() == 1 ? outputs[0] : concat(outputs, 1), embed_, {}}.logits();
}

}  // namespace eddy
