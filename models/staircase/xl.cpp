// Transformer-XL, ladder and universal: states, and a segment in both forms. The fast form norms the memory
// and the layer's own rows apart, once each.
#include "models/staircase/xl.h"

#include <algorithm>

#include "ops/views/views.h"

namespace eddy {

StaircaseXl::StaircaseXl(const staircase::Config& config, const ParamScope& scope)
    : StaircaseFamily(config, scope),
      repeats_(config.model == "transformer_xl" ? 1 : config.repeats),
      core_(scope, config, false) {}

LayerCall StaircaseXl::call_with_positions() const {
  LayerCall call;
  call.attention.band = {1, config().span};
  call.attention.positions = position_rows(core_.key_pe, config().span + 1, config().span);
  return call;
}

StateLayout StaircaseXl::state_layout(std::int64_t batch, std::int64_t past) const {
  StateLayout layout;
  each_layer([&](const std::string& name, std::int64_t, const StaircaseLayer&) {
    layout.push_back({.name = name, .shape = {batch, past, config().dim}});
  });
  return layout;
}

State StaircaseXl::import_state(const State& given, std::int64_t batch) const {
  State state = given;
  if (is_stream(given)) {
    const std::vector<std::int64_t> position = given.counts(kStreamPosition);
    const std::int64_t begin = position.at(0), end = position.at(1);
    const Tensor& data = given.get(kStreamRows);
    state = {};
    each_layer([&](const std::string& name, std::int64_t number, const StaircaseLayer&) {
      state.set(name, stream_inputs(data, number, begin, end));
    });
  }
  std::int64_t rows = config().span;
  if (!cold_zeros()) {
    const Tensor& first = state.get("mem.0.0");
    if (first.rank() == 3) rows = std::min(rows, first.dim(1));
  }
  check_state(state, state_layout(batch, rows));
  return state;
}

StaircaseFamily::Segment StaircaseXl::run_segment(const Tensor& x, const State& state, Run& run) const {
  LayerCall call = call_with_positions();
  call.drop = run.drop;
  call.literal = run.literal;
  call.first = run.first;
  State next;
  Tensor h = x;
  each_layer([&](const std::string& name, std::int64_t, const StaircaseLayer& layer) {
    const Tensor* carried_memory = state.find(name);
    next.set(name, last_rows(carried_memory, h, config().span));
    const Tensor memory = carried_memory != nullptr ? activation(*carried_memory) : Tensor();
    call.index = run.calls++;
    if (run.literal) {
      h = layer.literal(h, memory.defined() ? concat({memory, h}, 1) : h, call);
      return;
    }
    h = recomputed(run.recompute != Recompute::none,
                   [&layer, memory, call](const std::vector<Tensor>& in) {
                     const Tensor normed = layer.normed(in[0]),
                                  normed_memory = memory.defined() ? layer.normed(memory) : Tensor();
                     return layer(in[0], normed, layer.keys_values(normed, normed_memory), call);
                   },
                   {h});
  });
  return {h, next};
}

// ---- streaming, token by token: rows (stream_rows.h) of keys, values and inputs of each layer have room for
// 2 S tokens, of which the last S are visible. When they are full, these move to the front.

// A stream's rows [begin, end) are the last ones of every memory, `span` at most.
StateLayout StaircaseXl::stream_layout(std::int64_t batch, const std::vector<std::int64_t>&) const {
  return {rows_tensor(kStreamRows, repeats_ * config().layers, batch, 2 * config().span)};
}

State StaircaseXl::begin_stream(const State& imported, std::int64_t batch) const {
  const Tensor* first = imported.find("mem.0.0");
  const std::int64_t count = first != nullptr ? first->dim(1) : 0;
  const StreamRows rows = new_rows(repeats_ * config().layers, batch, 2 * config().span);
  each_layer([&](const std::string& name, std::int64_t number, const StaircaseLayer& layer) {
    if (count == 0) return;
    const Tensor& memory = imported.get(name);
    rows.put(number, 0, layer.keys_values(layer.normed(activation(memory))));
    rows.put_x(number, 0, memory);
  });
  State stream;
  stream.set(kStreamRows, rows.data());
  stream.set_counts(kStreamPosition, {0, count});
  return stream;
}

Tensor StaircaseXl::run_stream(const Tensor& x, State& state) const {
  const staircase::Config& c = config();
  const LayerCall call = call_with_positions();
  std::vector<std::int64_t> position = state.counts(kStreamPosition);
  std::int64_t &begin = position.at(0), &end = position.at(1);
  std::vector<Tensor> outputs;
  for (std::int64_t at = 0; at < x.dim(1);) {
    const std::int64_t count = std::min(x.dim(1) - at, c.span);
    const StreamRows rows = rows_with_room(state, begin, end, count);
    Tensor h = raw::copy(raw::narrow(x, 1, at, count));
    each_layer([&](const std::string&, std::int64_t number, const StaircaseLayer& layer) {
      const Tensor normed = layer.normed(h);
      rows.put(number, end, layer.keys_values(normed));
      rows.put_x(number, end, h);
      h = layer(h, normed, rows.keys_values(number, begin, end + count), call);
    });
    outputs.push_back(h);
    at += count;
    end += count;
    begin = std::max(begin, end - c.span);
    state.set_counts(kStreamPosition, position);
  }
  return outputs.size() == 1 ? outputs[0] : concat(outputs, 1);
}

}  // namespace eddy
