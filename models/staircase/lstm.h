// The LSTM baseline of the staircase family.
// Source: Hochreiter, Schmidhuber (1997); gate order i, f, g, o.
//
//   [i f g o] = x W_ih^T + b_ih + h W_hh^T + b_hh
//   c'        = sigmoid(f) c + sigmoid(i) tanh(g)
//   h'        = sigmoid(o) tanh(c')
//
// The products with x are one product for all time steps; those with h run step by step. Dropout is applied
// between layers. State: h.l, c.l [batch, dim], zeros at the start.
#pragma once

#include <cstdint>
#include <vector>

#include "models/staircase/family.h"
#include "ops/recurrence/lstm_cell.h"

namespace eddy {

class StaircaseLstm final : public StaircaseFamily {
 public:
  StaircaseLstm(const staircase::Config& config, const ParamScope& scope);

  bool is_recurrent() const override { return true; }
  bool has_blocks() const override { return true; }
  std::int64_t table_elements() const override { return config().vocab * config().embed_dim; }
  std::optional<KeySetting> needs_equal_starts() const override { return std::nullopt; }

 private:
  struct Layer {
    Tensor w_ih, w_hh, b_ih, b_hh;
  };

  Segment run_segment(const Tensor& x, const State& state, Run& run) const override;
  // One layer over a segment, from its part of the state, call number `call` of a layer; sets its part of the next one.
  Tensor run_layer(std::size_t l, const Tensor& x, const detail::LstmCell& before, std::uint64_t call,
                   const Run& run, detail::LstmCell& after) const;
  State begin_stream(const State& imported, std::int64_t) const override { return imported; }
  Tensor run_stream(const Tensor& x, State& state) const override;
  bool time_major() const override { return true; }
  StateLayout state_layout(std::int64_t batch, std::int64_t past) const override;
  StateLayout stream_layout(std::int64_t, const std::vector<std::int64_t>&) const override { return {}; }
  std::vector<std::int64_t> most_position() const override { return {}; }
  State import_state(const State& state, std::int64_t batch) const override;

  std::vector<Layer> layers_;
};

// The cell in its literal form, from one-line functions (literal.cpp).
// shapes: gates [batch, 4 dim], c [batch, dim].
detail::LstmCell literal_cell(const Tensor& gates, const Tensor& c);

}  // namespace eddy
