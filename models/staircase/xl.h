// Transformer-XL as the baseline of the staircase paper, and its two relatives.
// Source: the authors' code; ladder and universal as the paper describes them.
//
//   transformer_xl   h = layer_L(.. layer_1(x)); a token sees the S positions before it, not itself
//   ladder           the stack applied R times
//   universal        one layer applied R times
//
// State: mem.r.l [batch, S, dim], the last S inputs of layer l in pass r, detached. At the start it is zeros,
// which are not masked; with cold_start "empty" it has as many rows as there are tokens.
#pragma once

#include <cstdint>

#include "models/staircase/family.h"

namespace eddy {

class StaircaseXl final : public StaircaseFamily {
 public:
  StaircaseXl(const staircase::Config& config, const ParamScope& scope);

  // One layer for universal, which applies it several times.
  static void fit_to_sizes(staircase::Config& config) {
    if (config.model == "universal") config.layers = 1;
  }
  std::int64_t stream_period() const override {
    return config().model == "transformer_xl" ? config().segment : 1;
  }
  std::int64_t recurrent_steps() const override { return repeats_; }

 private:
  Segment run_segment(const Tensor& x, const State& state, Run& run) const override;
  State begin_stream(const State& imported, std::int64_t batch) const override;
  Tensor run_stream(const Tensor& x, State& state) const override;
  StateLayout state_layout(std::int64_t batch, std::int64_t past) const override;
  StateLayout stream_layout(std::int64_t batch, const std::vector<std::int64_t>& position) const override;
  std::vector<std::int64_t> most_position() const override { return {2 * config().span, 2 * config().span}; }
  std::int64_t most_past() const override { return config().span; }
  State import_state(const State& state, std::int64_t batch) const override;

  // Applies body(name of the memory, its number, layer) to each layer of each pass, in order.
  template <class Body>
  void each_layer(Body&& body) const;
  LayerCall call_with_positions() const;

  const std::int64_t repeats_;
  StaircaseCore core_;
};

template <class Body>
void StaircaseXl::each_layer(Body&& body) const {
  std::int64_t number = 0;
  for (std::int64_t r = 0; r < repeats_; ++r)
    for (std::size_t l = 0; l < core_.layers.size(); ++l)
      body(numbered("mem", r, static_cast<std::int64_t>(l)), number++, core_.layers[l]);
}

}  // namespace eddy
