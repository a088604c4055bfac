// Staircase and Cached Staircase: sizes, states, and the fast form of a segment (run_rows), where each tensor
// is computed once:
//
//   LN1 of a layer's input        once for queries, keys and values
//   keys and values of a chunk    when it is frozen, once for all rows that see it
//   the active chunks             in one tensor from row to row
//
// The literal form is run_literal in literal.cpp, streaming in stream.cpp.
#include "models/staircase/staircase.h"

#include <algorithm>
#include <memory>

#include "autograd/named_values.h"
#include "autograd/tape.h"
#include "models/named_place.h"
#include "ops/product/packed_weights.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {

Staircase::Staircase(const staircase::Config& config, const ParamScope& scope)
    : StaircaseFamily(config, scope),
      steps_(config.steps),
      passes_(config.model == "staircase" ? config.steps : config.cache_after),
      chunk_(config.chunk),
      core_(scope, config, false) {}

void Staircase::check_time(std::int64_t time) const {
  if (time % chunk_ != 0)
    fail<ShapeError>("{}: {} tokens in chunks of {} (a multiple of model.chunk; generation takes any number)",
                     config().model, time, chunk_);
  const std::int64_t last = (time - 1) % config().segment + 1;
  if (official() && last / chunk_ < passes_ - 1)
    fail<ShapeError>(
        "{}: a segment of {} chunks (at least {} with carry \"official\", whose state needs that many: {} "
        "tokens in segments of {} and chunks of {})",
        config().model, last / chunk_, passes_ - 1, time, config().segment, chunk_);
}

StateLayout Staircase::state_layout(std::int64_t batch, std::int64_t past) const {
  StateLayout layout;
  for (std::int64_t s = 0; s < passes_ - 1; ++s)
    for (std::int64_t l = 0; l < config().layers; ++l)
      layout.push_back({.name = numbered("act", s, l),
                        .shape = {batch, std::min(past, passes_ - 1 - s) * chunk_, config().dim}});
  // With M = N the cached model accepts the plain staircase's state, which has no `done`.
  if (has_done())
    layout.push_back(
        {.name = "done", .shape = {batch, past * chunk_, config().dim}, .optional = !has_frozen()});
  return layout;
}

std::int64_t Staircase::past_chunks(const State& state) const {
  if (const Tensor* done = state.find("done")) return done->dim(1) / chunk_;
  const Tensor* act = state.find("act.0.0");
  return act != nullptr ? act->dim(1) / chunk_ : 0;
}

State Staircase::import_state(const State& given, std::int64_t batch) const {
  State state = is_stream(given) ? export_stream(given) : given;
  // With N = 1 no finished chunk is kept: `done` may be a tensor without rows, or absent.
  if (config().model == "cached_staircase" && steps_ == 1) {
    check_state(state, {{.name = "done", .shape = {batch, 0, config().dim}, .optional = true}});
    return {};
  }
  if (state.empty()) return cold_state(batch);  // a stream without a past yet
  const Tensor* done = has_frozen() ? &state.get("done") : has_done() ? state.find("done") : nullptr;
  const Tensor* act = passes_ > 1 ? &state.get("act.0.0") : nullptr;
  const auto chunks_of = [&](const char* name, const Tensor& tensor, std::int64_t most) {
    const std::int64_t rows = tensor.rank() == 3 ? tensor.dim(1) : -1;
    if (rows < 0 || rows % chunk_ != 0 || rows > most * chunk_ || (cold_zeros() && rows != most * chunk_))
      fail<ShapeError>("{}: state {} has shape {} ([{}, {}, {}]{})", config().model, name,
                       to_string(tensor.shape()), batch, most * chunk_, config().dim,
                       cold_zeros() ? "" : ", or fewer whole chunks");
    return rows / chunk_;
  };
  const std::int64_t past = done != nullptr  ? chunks_of("done", *done, steps_ - 1)
                            : act != nullptr ? chunks_of("act.0.0", *act, passes_ - 1)
                                             : 0;
  check_state(state, state_layout(batch, past));
  if (has_done() && done == nullptr) state.set("done", zeros({batch, past * chunk_, config().dim}));
  return state;
}

Tensor Staircase::positions() const {
  return position_rows(core_.key_pe, steps_ * chunk_, config().span - 1);
}

StaircaseFamily::Segment Staircase::run_segment(const Tensor& x, const State& state, Run& run) const {
  return run.literal ? run_literal(x, state, run) : run_rows(x, state, run);
}

Tensor Staircase::carried_rows(const State& state, std::int64_t step, std::int64_t layer) const {
  const Tensor* rows = step < passes_ - 1 ? state.find(numbered("act", step, layer)) : nullptr;
  return rows != nullptr ? activation(*rows) : Tensor();
}

Tensor Staircase::run_step(const Tensor& x, const Step& step, const State& state, const LayerCall& call,
                           Recompute recompute, State& next) const {
  Tensor h = x;
  for (std::size_t l = 0; l < core_.layers.size(); ++l) {
    const auto number = static_cast<std::int64_t>(l);
    const Tensor old = carried_rows(state, step.number, number);
    const bool leaves = step.number >= step.chunks;
    const Tensor seen = leaves && !official() ? carried(joined(old, detach(h))) : Tensor();
    KeysValues frozen;
    if (step.frozen_end > step.frozen_begin)
      frozen = {step.frozen_keys[l].window(step.frozen_begin, step.frozen_end),
                step.frozen_values[l].window(step.frozen_begin, step.frozen_end)};
    h = recomputed(recompute != Recompute::none,
                   [&layer = core_.layers[l], old, frozen, call](const std::vector<Tensor>& in) {
                     const Tensor normed = layer.normed(in[0]),
                                  normed_old = old.defined() ? layer.normed(old) : Tensor();
                     KeysValues context;
                     if (frozen.k.defined())
                       context = layer.keys_values(normed, normed_old).with_past(frozen.k, frozen.v);
                     return layer(in[0], normed, context, call, normed_old);
                   },
                   {h});
    if (leaves) next.set(numbered("act", step.number - step.chunks, number), official() ? carried(h) : seen);
  }
  return h;
}

StaircaseFamily::Segment Staircase::run_rows(const Tensor& x, const State& state, Run& run) const {
  const std::int64_t batch = x.dim(0), chunks = x.dim(1) / chunk_, past = past_chunks(state);
  LayerCall call;
  call.attention.causal = true;
  call.attention.positions = positions();
  call.drop = run.drop;

  // Keys and values of frozen chunks, per layer; chunk j (negative: of earlier segments) begins at row
  // (j + past) C.
  std::vector<SeqBuffer> frozen_keys, frozen_values;
  const auto freeze = [&](const Tensor& final_states) {
    const Tensor x_frozen = contiguous(activation(final_states));
    for (std::size_t l = 0; l < core_.layers.size(); ++l) {
      const StaircaseLayer& layer = core_.layers[l];
      const KeysValues rows = layer.keys_values(layer.normed(x_frozen));
      frozen_keys[l] = frozen_keys[l].append(rows.k);
      frozen_values[l] = frozen_values[l].append(rows.v);
    }
  };
  if (has_frozen()) {
    const Shape room{batch, (past + chunks) * chunk_, config().heads, config().head_dim};
    frozen_keys.assign(core_.layers.size(), {});
    frozen_values.assign(core_.layers.size(), {});
    for (std::size_t l = 0; l < core_.layers.size(); ++l) {
      frozen_keys[l] = SeqBuffer(room, 1, params().activations(), device());
      frozen_values[l] = SeqBuffer(room, 1, params().activations(), device());
    }
    if (past > 0) freeze(state.get("done"));
  }

  State next;
  std::vector<Tensor> outputs;
  Tensor h;  // of the active chunks of this segment, oldest first
  const PackedWeightScope packed(chunks + passes_ - 1);
  for (std::int64_t s = 0; s < chunks + passes_ - 1; ++s) {
    if (s < chunks) {
      const Tensor entering = narrow(x, 1, s * chunk_, chunk_);
      h = h.defined() ? joined(h, entering) : contiguous(entering);
    }
    call.index = run.calls++;
    call.first = run.first + std::max<std::int64_t>(0, s - passes_ + 1) * chunk_;
    Step step;
    step.number = s;
    step.chunks = chunks;
    if (has_frozen()) {
      step.frozen_begin = std::max<std::int64_t>(0, past + s - steps_ + 1) * chunk_;
      step.frozen_end = std::max<std::int64_t>(0, past + s - passes_ + 1) * chunk_;
      step.frozen_keys = frozen_keys;
      step.frozen_values = frozen_values;
    }
    const auto after = std::make_shared<State>();
    h = recomputed(
        run.recompute == Recompute::block,
        [this, step, state, call, recompute = run.recompute, after](const std::vector<Tensor>& in) {
          *after = {};
          return run_step(in[0], step, state, call, recompute, *after);
        },
        {h});
    for (const auto& [name, rows] : *after) next.set(name, rows);
    name_place(call.first, call.first);
    name_value("state", h);
    if (s < passes_ - 1) continue;
    const std::int64_t rest = h.dim(1) - chunk_;
    Tensor finished = h;
    if (rest > 0) {
      const std::vector<Tensor> parts = split(h, 1, {chunk_, rest});
      finished = parts[0];
      h = s + 1 < chunks ? parts[1] : contiguous(parts[1]);
    } else {
      h = Tensor();
    }
    outputs.push_back(finished);
    // The last chunk's keys and values serve the next segment, which makes them from `done`.
    if (has_frozen() && std::ssize(outputs) < chunks) freeze(finished);
  }
  const Tensor hidden = outputs.size() == 1 ? contiguous(outputs[0]) : concat(outputs, 1);
  if (has_done()) next.set("done", last_rows(state.find("done"), hidden, (steps_ - 1) * chunk_));
  return {hidden, next};
}

}  // namespace eddy
