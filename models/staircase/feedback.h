// The Feedback Transformer, as the staircase paper's baseline.
// Source: Fan, Lavril, Grave, Joulin, Sukhbaatar, "Addressing Some Limitations of Transformers with Feedback
// Memory" (2020), and the authors' code.
//
// It runs token by token. With h^0 the embedding and h^l the output of layer l, token t has the memory vector
//
//   m_t = sum_l softmax(layer_logits)_l h_t^l            feedback_memory = "mix"
//       = h_t^L                                          feedback_memory = "last"
//
// and layer l of token t attends to m_{t-S} .. m_{t-1} with its own norm, Wk and Wv. With shared_kv all
// layers use those of layer 0, so they share one set of keys and values. With feedback_self a token also sees
// itself, through the layer's input, and only the S - 1 vectors before it.
//
// State: mem [batch, S, dim], detached; S - 1 rows with feedback_self. At the start it is zeros, which are
// not masked; with cold_start "empty" it has as many rows as there are tokens. With feedback_carry
// "official", pre-norm models carry LN1_0(m_t), like the authors' code; the next segment norms it again.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/named_values.h"
#include "models/staircase/family.h"
#include "ops/cast/upcast.h"
#include "ops/product/matmul.h"
#include "ops/views/views.h"

namespace eddy {

class StaircaseFeedback final : public StaircaseFamily {
 public:
  StaircaseFeedback(const staircase::Config& config, const ParamScope& scope);

  bool is_recurrent() const override { return true; }
  bool has_blocks() const override { return true; }

 private:
  // The results of one token, both [batch, 1, dim].
  struct Token {
    Tensor output, memory;
  };

  Segment run_segment(const Tensor& x, const State& state, Run& run) const override;
  State begin_stream(const State& imported, std::int64_t batch) const override;
  Tensor run_stream(const Tensor& x, State& state) const override;
  bool time_major() const override { return true; }
  StateLayout state_layout(std::int64_t batch, std::int64_t past) const override;
  StateLayout stream_layout(std::int64_t batch, const std::vector<std::int64_t>& position) const override;
  std::vector<std::int64_t> most_position() const override {
    return {2 * config().span, 2 * config().span, config().segment};
  }
  std::int64_t most_past() const override { return reach(); }
  State import_state(const State& state, std::int64_t batch) const override;

  // x [batch, 1, dim] through all layers; memory(l) returns the keys and values that layer l attends to.
  template <class Memory>
  Token run_token(const Tensor& x, const Tensor& weights, const LayerCall& call, Recompute recompute,
                  Memory&& memory) const;
  LayerCall call_with_positions() const;
  // softmax(layer_logits) [1, layers + 1]; undefined with feedback_memory "last".
  Tensor mix_weights() const;
  // The number of memory vectors that a token sees, itself not counted.
  std::int64_t reach() const { return config().span - (config().feedback_self ? 1 : 0); }
  // The number of layers with keys and values of their own.
  std::int64_t owners() const { return config().shared_kv ? 1 : config().layers; }
  bool carries_normed() const {
    return value_is(config().feedback_carry, staircase::FeedbackCarry::official) && config().prenorm;
  }
  // The memory at the end of a segment that began with `before` and added `memory`.
  Tensor memory_after(const Tensor* before, const Tensor& memory) const;
  // Writes memory vectors, with their keys and values, into a stream's rows from `at` on.
  void put_memory(const StreamRows& rows, std::int64_t at, const Tensor& memory) const;
  // At the end of a segment with feedback_carry "official": norms a stream's rows and recomputes keys and
  // values.
  void norm_stream(State& state, std::int64_t begin, std::int64_t end) const;

  StaircaseCore core_;
  Tensor layer_logits_;
};

template <class Memory>
StaircaseFeedback::Token StaircaseFeedback::run_token(const Tensor& x, const Tensor& weights,
                                                      const LayerCall& call, Recompute recompute,
                                                      Memory&& memory) const {
  const std::int64_t batch = x.dim(0), dim = x.dim(2);
  std::vector<Tensor> states{reshape(x, {1, batch * dim})};
  Tensor h = x;
  for (std::size_t l = 0; l < core_.layers.size(); ++l) {
    h = recomputed(recompute != Recompute::none,
                   [this, &layer = core_.layers[l], past = memory(l), call](const std::vector<Tensor>& in) {
                     const Tensor normed = layer.normed(in[0]);
                     const KeysValues seen =
                         config().feedback_self ? layer.keys_values(normed).with_past(past.k, past.v) : past;
                     return layer(in[0], normed, seen, call);
                   },
                   {h});
    if (weights.defined()) states.push_back(reshape(h, {1, batch * dim}));
  }
  Tensor mixed = h;
  if (weights.defined())
    mixed = reshape(activation(matmul(weights, upcast(concat(states, 0)), params().matmul_precision())),
                    {batch, 1, dim});
  name_value("state", mixed);
  return {h, mixed};
}

}  // namespace eddy
