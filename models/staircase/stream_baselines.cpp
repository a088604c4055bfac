// Streaming of the staircase family's baselines: the same numbers as run_segment, token by token.
//
//   transformer_xl,    rows of keys, values and inputs of each layer; the last S of them are visible
//   ladder, universal
//   feedback           rows of keys and values of m_t, one set per layer or one for all (shared_kv), and m_t
//   lstm               h and c: a stream's state is that of a segment
//
// The rows (stream_rows.h) have room for 2 S tokens. When they are full, the last S move to a new tensor.
#include <algorithm>

#include "models/staircase/feedback.h"
#include "models/staircase/lstm.h"
#include "models/staircase/xl.h"
#include "ops/views/views.h"

namespace eddy {

// A stream's rows [begin, end) are the last ones of every memory, `span` at most.
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
  set_stream_position(stream, {0, count});
  return stream;
}

Tensor StaircaseXl::run_stream(const Tensor& x, State& state) const {
  const ModelConfig& c = config();
  const LayerCall call = call_with_positions();
  std::vector<std::int64_t> position = stream_position(state);
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
    set_stream_position(state, position);
  }
  return outputs.size() == 1 ? outputs[0] : concat(outputs, 1);
}

// A stream's rows [begin, end) are the last memory vectors, reach() at most; `segment_tokens` counts the
// tokens since the segment began.
State StaircaseFeedback::begin_stream(const State& imported, std::int64_t batch) const {
  const Tensor* memory = imported.find("mem");
  const std::int64_t count = memory != nullptr ? memory->dim(1) : 0;
  const StreamRows rows = new_rows(owners(), batch, 2 * config().span);
  if (count > 0) put_memory(rows, 0, activation(*memory));
  State stream;
  stream.set(kStreamRows, rows.data());
  set_stream_position(stream, {0, count, 0});
  return stream;
}

void StaircaseFeedback::put_memory(const StreamRows& rows, std::int64_t at, const Tensor& memory) const {
  for (std::int64_t l = 0; l < owners(); ++l) {
    const StaircaseLayer& layer = core_.layers[static_cast<std::size_t>(l)];
    rows.put(l, at, layer.keys_values(layer.normed(memory)));
    rows.put_x(l, at, memory);
  }
}

void StaircaseFeedback::norm_stream(State& state, std::int64_t begin, std::int64_t end) const {
  const StreamRows rows = rows_of(state);
  put_memory(rows, begin, core_.layers[0].normed(raw::copy(rows.x(0, begin, end))));
}

Tensor StaircaseFeedback::run_stream(const Tensor& x, State& state) const {
  const ModelConfig& c = config();
  const std::int64_t batch = x.dim(1);
  const LayerCall call = call_with_positions();
  const Tensor weights = mix_weights();
  std::vector<std::int64_t> position = stream_position(state);
  std::int64_t &begin = position.at(0), &end = position.at(1), &segment_tokens = position.at(2);
  std::vector<Tensor> outputs;
  for (std::int64_t t = 0; t < x.dim(0); ++t) {
    {
      const StreamRows rows = rows_with_room(state, begin, end, 1);
      const std::int64_t first = std::max(begin, end - reach());
      const Token token =
          run_token(raw::reshape(raw::select(x, 0, t), {batch, 1, c.dim}), weights, call, [&](std::size_t l) {
            return rows.keys_values(c.shared_kv ? 0 : static_cast<std::int64_t>(l), first, end);
          });
      outputs.push_back(raw::reshape(token.output, {1, batch, c.dim}));
      put_memory(rows, end, token.memory);
    }
    ++end;
    ++segment_tokens;
    begin = std::max(begin, end - reach());
    if (segment_tokens == c.segment) {
      if (carries_normed()) norm_stream(state, std::max(begin, end - segment_tokens), end);
      segment_tokens = 0;
    }
    set_stream_position(state, position);
  }
  return outputs.size() == 1 ? outputs[0] : concat(outputs, 0);
}

Tensor StaircaseLstm::run_stream(const Tensor& x, State& state) const {
  Run run;
  Segment segment = run_segment(x, state, run);
  state = std::move(segment.state);
  return segment.hidden;
}

}  // namespace eddy
