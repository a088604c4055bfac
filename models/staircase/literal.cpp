// READ THIS FIRST: staircase attention as the paper writes it, row after row, each with its whole window.
//
// Chunk s of C tokens enters at row s, X_j^n is chunk j after n passes, TC the stack of L layers (causal):
//
//   staircase          row s:  (X_{s-N+1}^N, .., X_s^1) = TC(X_{s-N+1}^{N-1}, .., X_s^0)
//
//   cached_staircase   row s:  (X_{s-M+1}^M, .., X_s^1) = TC(X_{s-M+1}^{M-1}, .., X_s^0),
//                      keys and values also of the frozen chunks  X_{s-N+1}^M, .., X_{s-M}^M
//
//   output             y_j = X_j^M                  (M = N in the plain staircase)
//
// A segment of K chunks, whose `state` is what the segment before left (staircase.h):
//
//   for row s = 0 .. K+M-2:                         rows K .. K+M-2 take in no chunk: the flush
//     frozen = X_j^M  of chunks s-N+1 .. s-M        negative numbers: state.done
//     h      = (X_j)  of chunks s-M+1 .. s          those of this segment
//     for layer l = 0 .. L-1:
//       old = state.act[s][l]                       what layer l saw of the segment before; s < M-1
//       h   = layer_l(h, context = (frozen, old, h))
//
// One layer, LayerNorm first (layer.h has both orders), d = (position of the query) - (position of the key):
//
//   h = x + Attn(LN1(x), LN1(context)) Wo^T;   y = h + relu(LN2(h) U^T + a) V^T + b
//   score(i, j) = (q_i . k_j + q_i . positions[d]) / sqrt(head_dim)
//
// The baselines share one loop between both forms; only the innermost step differs with `run.literal`:
//
//   transformer_xl, ladder, universal   xl.cpp        context (memory, h) through StaircaseLayer::literal
//   feedback                            feedback.cpp  keys and values of all visible m_t, made anew per token
//   lstm                                lstm.cpp      literal_cell, below
//
// ForwardInput::literal runs this file. The fast form is Staircase::run_rows in staircase.cpp; tests compare
// them.
// Source: Ju, Roller, Sukhbaatar, Weston, "Staircase Attention for Recurrent Processing of Sequences" (2021).
#include <algorithm>

#include "autograd/named_values.h"
#include "autograd/tape.h"
#include "models/named_place.h"
#include "models/staircase/lstm.h"
#include "models/staircase/staircase.h"
#include "ops/ops.h"

namespace eddy {

StaircaseFamily::Segment Staircase::run_literal(const Tensor& x, const State& state, Run& run) const {
  const std::int64_t chunks = x.dim(1) / chunk_, past = past_chunks(state);
  const auto layers = std::ssize(core_.layers);
  LayerCall call;
  call.attention.causal = true;
  call.attention.positions = positions();
  call.drop = run.drop;
  call.literal = true;

  std::vector<Tensor> now;  // the chunks' states
  for (std::int64_t j = 0; j < chunks; ++j) now.push_back(narrow(x, 1, j * chunk_, chunk_));
  State next;
  for (std::int64_t s = 0; s < chunks + passes_ - 1; ++s) {
    Tensor frozen;  // of chunks s-N+1 .. s-M; negative ones come from `done`
    for (std::int64_t j = std::max(s - steps_ + 1, -past); j <= s - passes_; ++j)
      frozen =
          joined(frozen, j < 0 ? activation(raw::narrow(state.get("done"), 1, (past + j) * chunk_, chunk_))
                               : now[static_cast<std::size_t>(j)]);
    const std::int64_t first = std::max<std::int64_t>(0, s - passes_ + 1), last = std::min(s, chunks - 1);
    Tensor h;
    for (std::int64_t j = first; j <= last; ++j) h = joined(h, now[static_cast<std::size_t>(j)]);
    call.index = run.calls++;
    call.first = run.first + first * chunk_;
    for (std::int64_t l = 0; l < layers; ++l) {
      const Tensor old = carried_rows(state, s, l);
      if (s >= chunks && !official())
        next.set(numbered("act", s - chunks, l), carried(joined(old, detach(h))));
      h = core_.layers[static_cast<std::size_t>(l)].literal(h, joined(frozen, joined(old, h)), call);
      if (s >= chunks && official()) next.set(numbered("act", s - chunks, l), carried(h));
    }
    name_place(call.first, call.first);
    name_value("state", h);
    for (std::int64_t j = first; j <= last; ++j)
      now[static_cast<std::size_t>(j)] = narrow(h, 1, (j - first) * chunk_, chunk_);
  }
  const Tensor hidden = now.size() == 1 ? contiguous(now[0]) : concat(now, 1);
  if (has_done()) next.set("done", last_rows(state.find("done"), hidden, (steps_ - 1) * chunk_));
  return {hidden, next};
}

Tensor StaircaseLayer::literal(const Tensor& x, const Tensor& context, const LayerCall& call) const {
  return (*this)(x, normed(x), keys_values(normed(context)), call);
}

detail::LstmCell literal_cell(const Tensor& gates, const Tensor& c) {
  const std::int64_t hidden = c.dim(1);
  const std::vector<Tensor> parts = split(gates, 1, {hidden, hidden, hidden, hidden});
  const Tensor input = sigmoid(parts[0]), forget = sigmoid(parts[1]), output = sigmoid(parts[3]);
  name_value("input_gate", input);
  name_value("forget_gate", forget);
  name_value("output_gate", output);
  const Tensor next = forget * c + input * tanh(parts[2]);
  return {output * tanh(next), next};
}

}  // namespace eddy
