// Streaming of the staircase, token by token, and the entry of every stream of the family. The baselines'
// streams are in their own files.
//
// A stream keeps the current chunk's M rows. Row n holds, for every layer, keys and values of what pass n
// sees: frozen chunks, chunks that were active then, and this chunk's own tokens so far.
//
//   row 1   | frozen N-M | active M-1      | own ->
//   row 2   | frozen N-M | active M-2 | own ->
//   ...
//   row M   | frozen N-M | own ->
//
// A new token passes through rows 1 .. M: what it becomes in row n enters row n+1, and row M gives the
// output. When the chunk is complete, row n+1 becomes row n, and row M begins with the last N-M finished
// chunks, now frozen.
//
// Beside keys and values a row keeps what a segment's state is made of (act.{n-1}.l): the layer's inputs, or
// with carry "official" its outputs.
#include <algorithm>
#include <limits>

#include "autograd/tape.h"
#include "models/staircase/staircase.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr const char* kOutputs = "stream.outputs";  // of the current chunk, [1, batch, chunk, dim]
constexpr const char* kDone = "stream.done";        // of the chunks before it, [batch, rows, dim]

// Row 1 carries the name that all streams have.
std::string row_name(std::int64_t pass) {
  return pass == 1 ? kStreamRows : fmt::format("{}.{}", kStreamRows, pass);
}

}  // namespace

Tensor StaircaseFamily::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  check_tokens(tokens);
  const std::int64_t batch = tokens.dim(0);
  const Tensor x = embed(tokens);
  if (is_stream(state)) {
    check_stream(state, batch);
  } else {
    state = begin_stream(state.empty() ? cold_state(batch) : import_state(state, batch), batch);
  }
  return head(run_stream(x, state), {}).logits();
}

// How many rows a stream has depends on its position, which is checked first.
void StaircaseFamily::check_stream(const State& stream, std::int64_t batch) const {
  const std::vector<std::int64_t> most = most_position();
  if (most.empty()) return;  // import_state refuses it
  const StateTensor position{.name = kStreamPosition,
                             .shape = {static_cast<std::int64_t>(most.size())},
                             .kind = StateTensor::Kind::count,
                             .most = most};
  State alone;
  alone.set(position.name, stream.get(position.name));
  check_state(alone, {position});
  StateLayout layout = stream_layout(batch, stream.counts(position.name));
  layout.push_back(position);
  check_state(stream, layout);
}

bool is_stream(const State& state) {
  return state.find(kStreamPosition) != nullptr;
}

std::int64_t Staircase::active_before(std::int64_t pass, std::int64_t past) const {
  return std::min(past, passes_ - pass);
}
std::int64_t Staircase::frozen_before(std::int64_t pass, std::int64_t past) const {
  return std::min(past, steps_ - pass) - active_before(pass, past);
}

// The third count is that of the segment, which only the official carry ends.
std::optional<std::vector<std::int64_t>> Staircase::stream_signature(const State& state) const {
  std::vector<std::int64_t> place = counts_of(state);
  if (!official() && place.size() > 2) place.resize(2);
  return place;
}

std::vector<std::int64_t> Staircase::most_position() const {
  // Only the official carry ends the segment that the last number counts.
  return {chunk_ - 1, steps_ - 1, official() ? config().segment : std::numeric_limits<std::int64_t>::max()};
}

StateLayout Staircase::stream_layout(std::int64_t batch, const std::vector<std::int64_t>& position) const {
  StateLayout layout;
  for (std::int64_t n = 1; n <= passes_; ++n)
    layout.push_back(
        rows_tensor(row_name(n), config().layers, batch, rows_before(n, position.at(1)) + chunk_));
  if (!has_done()) return layout;
  layout.push_back({.name = kOutputs, .shape = {1, batch, chunk_, config().dim}, .batch_axis = 1});
  layout.push_back({.name = kDone, .shape = {batch, 0, config().dim}, .optional = true, .growing_axis = 1});
  return layout;
}

State Staircase::begin_stream(const State& imported, std::int64_t batch) const {
  const staircase::Config& c = config();
  const std::int64_t past = past_chunks(imported);
  const Tensor* done = has_frozen() && past > 0 ? &imported.get("done") : nullptr;
  State stream;
  for (std::int64_t n = 1; n <= passes_; ++n) {
    const std::int64_t active = active_before(n, past), frozen = frozen_before(n, past);
    const StreamRows rows = new_rows(c.layers, batch, rows_before(n, past) + chunk_);
    for (std::int64_t l = 0; l < c.layers; ++l) {
      if (active == 0) continue;
      const StaircaseLayer& layer = core_.layers[static_cast<std::size_t>(l)];
      const Tensor& act = imported.get(numbered("act", n - 1, l));
      rows.put(l, frozen * chunk_, layer.keys_values(layer.normed(activation(act))));
      rows.put_x(l, frozen * chunk_, act);
    }
    stream.set(row_name(n), rows.data());
  }
  for (std::int64_t l = 0; done != nullptr && l < c.layers; ++l) {
    const StaircaseLayer& layer = core_.layers[static_cast<std::size_t>(l)];
    const KeysValues all = layer.keys_values(layer.normed(activation(*done)));
    for (std::int64_t n = 1; n <= passes_; ++n) {
      const std::int64_t frozen = frozen_before(n, past) * chunk_;
      if (frozen == 0) continue;
      const std::int64_t begin = (past - active_before(n, past)) * chunk_ - frozen;
      rows_of(stream, row_name(n))
          .put(l, 0, {raw::narrow(all.k, 1, begin, frozen), raw::narrow(all.v, 1, begin, frozen)});
    }
  }
  if (has_done()) {
    stream.set(kOutputs, zeros({1, batch, chunk_, c.dim}));
    if (const Tensor* before = imported.find("done")) stream.set(kDone, *before);
  }
  stream.set_counts(kStreamPosition, {0, past, 0});
  return stream;
}

State Staircase::export_stream(const State& stream) const {
  const std::vector<std::int64_t> position = stream.counts(kStreamPosition);
  const std::int64_t filled = position.at(0), past = position.at(1), segment_tokens = position.at(2);
  if (filled != 0)
    fail<ValueError>(
        "{}: the stream stands behind {} of {} tokens of a chunk (a segment begins with a chunk; stream the "
        "rest of it first)",
        config().model, filled, chunk_);
  if (official() && segment_tokens != 0 && segment_tokens < (passes_ - 1) * chunk_)
    fail<ValueError>(
        "{}: the stream stands behind {} tokens of a segment (at least {} with carry \"official\")",
        config().model, segment_tokens, (passes_ - 1) * chunk_);
  State state;
  if (past == 0) return state;
  for (std::int64_t n = 1; n < passes_; ++n) {
    const Tensor& data = stream.get(row_name(n));
    const std::int64_t begin = frozen_before(n, past) * chunk_, rows = active_before(n, past) * chunk_;
    for (std::int64_t l = 0; l < config().layers; ++l)
      state.set(numbered("act", n - 1, l), stream_inputs(data, l, begin, begin + rows));
  }
  if (const Tensor* done = stream.find(kDone)) state.set("done", *done);
  return state;
}

void Staircase::finish_chunk(State& stream, Position& position) const {
  const staircase::Config& c = config();
  const std::int64_t batch = stream.get(kStreamRows).dim(1), past = position.past;
  const std::int64_t next_past = std::min(past + 1, steps_ - 1);
  Tensor finished;
  if (has_done()) {
    finished = raw::copy(raw::select(stream.get(kOutputs), 0, 0));
    stream.set(kDone, last_rows(stream.find(kDone), finished, (steps_ - 1) * chunk_));
  }
  // Row M as it was lends the new one its frozen chunks before it becomes row M-1.
  const std::int64_t frozen = frozen_before(passes_, next_past);
  const StreamRows top = new_rows(c.layers, batch, (frozen + 1) * chunk_);
  if (frozen > 0) {
    const std::int64_t kept = (frozen - 1) * chunk_, had = frozen_before(passes_, past) * chunk_;
    top.put_rows(0, rows_of(stream, row_name(passes_)), had - kept, kept);
    for (std::int64_t l = 0; l < c.layers; ++l) {
      const StaircaseLayer& layer = core_.layers[static_cast<std::size_t>(l)];
      top.put(l, kept, layer.keys_values(layer.normed(activation(finished))));
    }
  }
  for (std::int64_t n = 1; n < passes_; ++n) {
    const std::int64_t held = rows_before(n, next_past);  // all that row n+1 holds
    const StreamRows rows = new_rows(c.layers, batch, held + chunk_);
    rows.put_rows(0, rows_of(stream, row_name(n + 1)), 0, held);
    stream.set(row_name(n), rows.data());
  }
  stream.set(row_name(passes_), top.data());
  position.past = next_past;
  position.filled = 0;
  if (!official() || position.segment_tokens < c.segment) {
    stream.set_counts(kStreamPosition, {0, position.past, position.segment_tokens});
    return;
  }
  stream.set_counts(kStreamPosition, {0, position.past, 0});
  stream = begin_stream(export_stream(stream), batch);
  position.segment_tokens = 0;
}

Tensor Staircase::stream_piece(const Tensor& x, State& stream, const Position& position) const {
  const staircase::Config& c = config();
  LayerCall call;
  call.attention.causal = true;
  call.attention.positions = positions();
  Tensor h = x;
  for (std::int64_t n = 1; n <= passes_; ++n) {
    const StreamRows rows = rows_of(stream, row_name(n));
    const std::int64_t at = rows_before(n, position.past) + position.filled;
    for (std::int64_t l = 0; l < c.layers; ++l) {
      const StaircaseLayer& layer = core_.layers[static_cast<std::size_t>(l)];
      const Tensor normed = layer.normed(h), input = h;
      rows.put(l, at, layer.keys_values(normed));
      h = layer(h, normed, rows.keys_values(l, 0, at + x.dim(1)), call);
      rows.put_x(l, at, official() ? h : input);
    }
  }
  return h;
}

Tensor Staircase::run_stream(const Tensor& x, State& state) const {
  const std::vector<std::int64_t> numbers = state.counts(kStreamPosition);
  Position position{numbers.at(0), numbers.at(1), numbers.at(2)};
  std::vector<Tensor> outputs;
  for (std::int64_t begin = 0; begin < x.dim(1);) {
    const std::int64_t count = std::min(x.dim(1) - begin, chunk_ - position.filled);
    const Tensor y = stream_piece(raw::copy(raw::narrow(x, 1, begin, count)), state, position);
    if (has_done()) {
      RowCache(state, kOutputs, 2).layer(0).put(position.filled, y);
    }
    outputs.push_back(y);
    begin += count;
    position.filled += count;
    position.segment_tokens += count;
    if (position.filled == chunk_)
      finish_chunk(state, position);
    else
      state.set_counts(kStreamPosition, {position.filled, position.past, position.segment_tokens});
  }
  return outputs.size() == 1 ? outputs[0] : concat(outputs, 1);
}

}  // namespace eddy
