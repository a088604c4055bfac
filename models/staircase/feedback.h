// The Feedback Transformer, as the staircase paper's baseline.
// Source: Fan, Lavril, Grave, Joulin, Sukhbaatar, "Addressing Some Limitations of Transformers with Feedback
// Memory" (2020), and the authors' code.
//
// One token at a time. With h^0 the embedding and h^l the output of layer l, token t leaves one memory vector
//
//   m_t = sum_l softmax(layer_logits)_l h_t^l        (feedback_memory "last": h_t^L)
//
// and layer l of token t attends to m_{t-S} .. m_{t-1} through its own norm, Wk and Wv. With shared_kv all
// layers use those of layer 0, so one set of keys and values serves them all. With feedback_self a token also
// sees itself, through the layer's input, and S - 1 vectors before it.
//
// State: mem [batch, S, dim], constant: zeros at the start, which receive attention, or with an empty cold
// start as many rows as there are. feedback_carry "official" carries LN1_0(m_t) with pre-norm, as the
// authors' code does, which norms it again.
#pragma once

#include <cstdint>
#include <vector>

#include "models/staircase/family.h"

namespace eddy {

class StaircaseFeedback final : public StaircaseFamily {
 public:
  StaircaseFeedback(const ModelConfig& config, const ParamScope& scope);

  double forward_macs_per_token(std::int64_t time) const override;

 private:
  // What one token leaves: [batch, 1, dim] both.
  struct Token {
    Tensor output, memory;
  };

  Segment run_segment(const Tensor& x, const State& state, Run& run) const override;
  State begin_stream(const State& imported, std::int64_t batch) const override;
  Tensor run_stream(const Tensor& x, State& state) const override;
  bool time_major() const override { return true; }
  State cold_state(std::int64_t batch) const override;
  State import_state(const State& state, std::int64_t batch) const override;

  // x [batch, 1, dim] through all layers; memory(l) gives the keys and values that layer l looks at.
  template <class Memory>
  Token run_token(const Tensor& x, const Tensor& weights, const LayerCall& call, Memory&& memory) const;
  LayerCall call_with_positions() const;
  // softmax(layer_logits) [1, layers + 1], or undefined when only the last layer is remembered.
  Tensor mix_weights() const;
  // Memory vectors that a token sees besides itself.
  std::int64_t reach() const { return config().span - (config().feedback_self ? 1 : 0); }
  // Layers with keys and values of their own.
  std::int64_t owners() const { return config().shared_kv ? 1 : config().layers; }
  bool carries_normed() const { return config().feedback_carry == "official" && config().prenorm; }
  // The memory at the end of a segment that began with `before` and left `memory`.
  Tensor memory_after(const Tensor* before, const Tensor& memory) const;
  // A stream's rows at the end of a segment of official carry: normed, with keys and values made anew.
  void norm_stream(State& state, std::int64_t begin, std::int64_t end) const;

  StaircaseCore core_;
  Tensor layer_logits_;
};

}  // namespace eddy
