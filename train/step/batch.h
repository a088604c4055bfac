// What one forward pass is given and scored on, and the state that goes from one to the next.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"
#include "tensor/tensor.h"

namespace eddy {

// Targets of this value are not scored.
inline constexpr std::int32_t kNotScored = -1;

struct Batch {
  Tensor tokens;   // [batch, time] i32
  Tensor targets;  // [batch, rows] i32, rows as the model's readout gives: time, 1, or tail; kNotScored: none
  Tensor start;    // [batch, 1] i64, 1 where a row begins anew; undefined: no row does
  std::int64_t block = 0;   // positions per block in this call; 0: model.block
  std::int64_t tail = 0;    // with readout tail: how many last positions are scored
  std::int64_t scored = 0;  // targets that are
};

// The batch of given ids, row by row; counts what is scored. `tokens` has batch * time ids, `targets` batch *
// rows; `starts` has a 0 or 1 for each row, or is empty for none.
// errors: ShapeError when the sizes do not fit.
Batch make_batch(std::int64_t batch, std::vector<std::int32_t> tokens, std::vector<std::int32_t> targets,
                 const std::vector<std::int64_t>& starts = {});

// The input for a batch on a model's device. Start flags, state and dropout are left to the caller.
ForwardInput forward_input(const Batch& batch, Device device);

// The model's state between batches.
struct CarriedState {
  State state;  // without a graph
  std::int64_t rows = 0;

  // Hands the state to the next batch's input, with the flags of the rows to reset: one for each segment of
  // the call, as the model counts them, set in the first, on the CPU. Nothing is handed over when
  // every row begins anew or the number of rows is another: the model starts cold.
  void enter(ForwardInput& input, const Batch& batch, const ModelConfig& config) const;
  // Takes what the batch left, cut off from its graph.
  void leave(const State& after, const Batch& batch);
};

}  // namespace eddy
