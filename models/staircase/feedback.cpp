// The Feedback Transformer: states, and a segment in both forms, token by token. The fast form makes keys and
// values of a memory vector m_t once, when it appears; the literal form makes those of all visible ones anew
// for each token.
#include "models/staircase/feedback.h"

#include <algorithm>

#include "autograd/named_values.h"
#include "autograd/seq_buffer.h"
#include "autograd/tape.h"
#include "ops/product/packed_weights.h"
#include "ops/reduce/softmax.h"

namespace eddy {

StaircaseFeedback::StaircaseFeedback(const staircase::Config& config, const ParamScope& scope)
    : StaircaseFamily(config, scope), core_(scope, config, config.shared_kv) {
  const ParamScope mix = scope.scope("feedback");
  layer_logits_ =
      value_is(config.feedback_memory, staircase::FeedbackMemory::mix)
          ? mix.param("layer_logits", {config.layers + 1}, Init::zeros())
          : mix.omitted("layer_logits",
                        "model.feedback_memory = \"last\" mixes no layers: take it out of the file, where "
                        "nothing reads it");
}

// The last key of a token is the token itself, at distance 0, or the token before, at distance 1; both have
// column S-1 of the position table. Attention places the last key at the query's position, so one table
// serves both.
LayerCall StaircaseFeedback::call_with_positions() const {
  LayerCall call;
  call.attention.causal = true;
  call.attention.positions = position_rows(core_.key_pe, config().span, config().span - 1);
  return call;
}

Tensor StaircaseFeedback::mix_weights() const {
  if (value_is(config().feedback_memory, staircase::FeedbackMemory::last)) return {};
  const Tensor weights = softmax(layer_logits_);
  name_value("feedback.mix", weights);
  return reshape(weights, {1, config().layers + 1});
}

StateLayout StaircaseFeedback::state_layout(std::int64_t batch, std::int64_t past) const {
  return {{.name = "mem", .shape = {batch, past, config().dim}}};
}

State StaircaseFeedback::import_state(const State& given, std::int64_t batch) const {
  State state = given;
  if (is_stream(given)) {
    const std::vector<std::int64_t> position = given.counts(kStreamPosition);
    const std::int64_t begin = position.at(0), end = position.at(1), segment_tokens = position.at(2);
    const Tensor& data = given.get(kStreamRows);
    const Tensor rows = stream_inputs(data, 0, begin, end);
    const std::int64_t fresh = std::min(segment_tokens, end - begin);
    if (carries_normed() && fresh > 0) {
      const NoGrad no_grad;
      const Tensor part = raw::narrow(rows, 1, end - begin - fresh, fresh);
      raw::cast_into(part, core_.layers[0].normed(raw::cast(part, params().activations())));
    }
    state = {};
    state.set("mem", rows);
  }
  const Tensor& memory = state.get("mem");
  if (config().feedback_self && memory.rank() == 3 && memory.dim(1) == config().span)
    fail<ShapeError>(
        "{}: state mem has {} rows (model.feedback_self = true carries {}, one less than model.span, because "
        "a token is itself one of those it sees: begin with an empty state, or a new run with --init-from)",
        config().model, memory.dim(1), reach());
  const bool shorter = !cold_zeros() && memory.rank() == 3 && memory.dim(1) < reach();
  check_state(state, state_layout(batch, shorter ? memory.dim(1) : reach()));
  return state;
}

Tensor StaircaseFeedback::memory_after(const Tensor* before, const Tensor& memory) const {
  const NoGrad no_grad;
  const std::int64_t kept = std::min(memory.dim(1), reach());
  Tensor last = raw::copy(raw::narrow(memory, 1, memory.dim(1) - kept, kept));
  if (carries_normed()) last = core_.layers[0].normed(last);
  return last_rows(before, last, reach());
}

StaircaseFamily::Segment StaircaseFeedback::run_segment(const Tensor& x, const State& state, Run& run) const {
  const std::int64_t time = x.dim(0), batch = x.dim(1), dim = x.dim(2);
  const Tensor* carried_memory = state.find("mem");
  const std::int64_t past = carried_memory != nullptr ? carried_memory->dim(1) : 0;
  LayerCall call = call_with_positions();
  call.drop = run.drop;
  call.literal = run.literal;
  call.behind = config().feedback_self ? 0 : 1;
  const Tensor weights = mix_weights();

  const PackedWeightScope packed(time);
  // Keys and values of all memory vectors, per owner: row past + t is m_t.
  std::vector<SeqBuffer> keys, values;
  Tensor literal_memory = activation(carried_memory != nullptr ? *carried_memory : zeros({batch, 0, dim}));
  const auto remember = [&](const Tensor& rows) {
    for (std::size_t l = 0; l < keys.size(); ++l) {
      const StaircaseLayer& layer = core_.layers[l];
      const KeysValues made = layer.keys_values(layer.normed(rows));
      keys[l] = keys[l].append(made.k);
      values[l] = values[l].append(made.v);
    }
  };
  if (!run.literal) {
    const Shape room{batch, past + time, config().heads, config().head_dim};
    for (std::int64_t l = 0; l < owners(); ++l) {
      keys.emplace_back(room, 1, params().activations(), device());
      values.emplace_back(room, 1, params().activations(), device());
    }
    if (past > 0) remember(activation(*carried_memory));
  }

  std::vector<Tensor> outputs, memories;
  for (std::int64_t t = 0; t < time; ++t) {
    const std::int64_t end = past + t, begin = std::max<std::int64_t>(0, end - reach());
    call.index = run.calls++;
    call.first = run.first + t;
    // The rows that exist now, which later ones follow in the same storage.
    const auto seen = [this, run, begin, end, literal_memory, keys, values](std::size_t l) -> KeysValues {
      if (run.literal) {
        const StaircaseLayer& layer = core_.layers[l];
        return layer.keys_values(layer.normed(contiguous(narrow(literal_memory, 1, begin, end - begin))));
      }
      const std::size_t owner = config().shared_kv ? 0 : l;
      return {keys[owner].window(begin, end), values[owner].window(begin, end)};
    };
    const std::vector<Tensor> done =
        recomputed(run.recompute == Recompute::block,
                   [this, weights, call, run, seen](const std::vector<Tensor>& in) {
                     const Token made = run_token(in[0], weights, call, run.recompute, seen);
                     return weights.defined() ? std::vector<Tensor>{made.output, made.memory}
                                              : std::vector<Tensor>{made.output};
                   },
                   {reshape(select(x, 0, t), {batch, 1, dim})});
    const Token token{done.front(), done.back()};
    outputs.push_back(reshape(token.output, {1, batch, dim}));
    memories.push_back(detach(token.memory));
    if (run.literal)
      literal_memory = concat({literal_memory, token.memory}, 1);
    else if (t + 1 < time)
      remember(token.memory);
  }
  State next;
  next.set("mem", memory_after(carried_memory, concat(memories, 1)));
  return {concat(outputs, 0), next};
}

// ---- streaming: rows as in xl.cpp, of keys and values of m_t (one set per layer, or one for all with
// shared_kv), and m_t

// A stream's rows [begin, end) are the last memory vectors, reach() at most; `segment_tokens` counts the
// tokens since the segment began.
StateLayout StaircaseFeedback::stream_layout(std::int64_t batch, const std::vector<std::int64_t>&) const {
  return {rows_tensor(kStreamRows, owners(), batch, 2 * config().span)};
}

State StaircaseFeedback::begin_stream(const State& imported, std::int64_t batch) const {
  const Tensor* memory = imported.find("mem");
  const std::int64_t count = memory != nullptr ? memory->dim(1) : 0;
  const StreamRows rows = new_rows(owners(), batch, 2 * config().span);
  if (count > 0) put_memory(rows, 0, activation(*memory));
  State stream;
  stream.set(kStreamRows, rows.data());
  stream.set_counts(kStreamPosition, {0, count, 0});
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
  const staircase::Config& c = config();
  const std::int64_t batch = x.dim(1);
  const LayerCall call = call_with_positions();
  const Tensor weights = mix_weights();
  std::vector<std::int64_t> position = state.counts(kStreamPosition);
  std::int64_t &begin = position.at(0), &end = position.at(1), &segment_tokens = position.at(2);
  std::vector<Tensor> outputs;
  for (std::int64_t t = 0; t < x.dim(0); ++t) {
    {
      const StreamRows rows = rows_with_room(state, begin, end, 1);
      const std::int64_t first = std::max(begin, end - reach());
      const Token token =
          run_token(raw::reshape(raw::select(x, 0, t), {batch, 1, c.dim}), weights, call, Recompute::none,
                    [&](std::size_t l) {
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
    state.set_counts(kStreamPosition, position);
  }
  return outputs.size() == 1 ? outputs[0] : concat(outputs, 0);
}

}  // namespace eddy
