// The tokens and targets of one forward pass, and the model's state between two passes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tensor/tensor.h"

namespace eddy::training {

// Targets of this value are not scored.
inline constexpr std::int32_t kNotScored = -1;

enum class RowsBegin : std::uint8_t { none, some, all };

struct Batch {
  Tensor tokens;   // [batch, time] i32
  Tensor targets;  // [batch, rows] i32; the model's readout sets rows: time, 1 or tail; kNotScored: no target
  Tensor start;    // [batch, 1] i64, 1 where a row begins with a new state; undefined: no row does
  RowsBegin begin = RowsBegin::none;  // how many rows begin with a new state
  std::int64_t block = 0;             // positions per block in this call; 0: model.block
  std::int64_t tail = 0;              // with readout "tail": number of last positions that are scored
  std::int64_t scored = 0;            // how many targets are scored
};

// A batch of the given ids, row-major, with its scored targets counted. `tokens` has batch * time ids and
// `targets` batch * rows; `starts` has a 0 or 1 for each row, or is empty for none.
// errors: ShapeError when the sizes do not fit.
Batch make_batch(std::int64_t batch, std::vector<std::int32_t> tokens, std::vector<std::int32_t> targets,
                 const std::vector<std::int64_t>& starts = {});

// The targets of the last positions of each row, as a model without a readout takes them: those of all `time`
// positions, of which the first are not scored.
std::vector<std::int32_t> behind_unscored(const std::vector<std::int32_t>& targets, std::int64_t rows,
                                          std::int64_t time);

// Part `part` of `parts` equal parts of a batch's rows. It counts as beginning with new states as the whole batch does,
// so that all parts are treated alike.
// errors: ShapeError when the parts are not equal.
Batch part_of_batch(const Batch& batch, std::int64_t part, std::int64_t parts);

// The number of scored targets of each micro-batch, batch by batch.
std::vector<std::int64_t> scored_targets(const std::vector<Batch>& batches, std::int64_t micro_batches);

// Part `part` of `parts` equal parts of the rows of a model's state, and the state that such parts make up in order. A
// part that is a view of the state is row-major or copied.
// errors: ShapeError when a tensor cannot be split so; ValueError when the parts hold different tensors.
State part_of_state(const State& state, const Model& model, std::int64_t part, std::int64_t parts);
State merged_state(const std::vector<State>& parts, const Model& model);

// The part of a batch's signature that is not in the shapes of its tensors (recorder.h): how many rows begin with a
// new state is part of it, which ones is not.
std::string batch_signature(const Batch& batch);

// The model's input for a batch that starts cold, on its device. The caller sets what else it wants, such as dropout.
ForwardInput forward_input(const Batch& batch, Device device);

// The recurrent state between batches, in training and in evaluation. Its values carry over; gradients do not.
struct CarriedState {
  State state;  // detached
  std::int64_t rows = 0;

  // The state that a batch starts from. It is empty, and the model starts cold, if all rows of the batch begin with a
  // new state, or if the number of rows has changed.
  State before(const Batch& batch) const;
  // The model's input for a batch that starts from it, with start flags for the rows that begin with a new state:
  // [rows, segments of the call] on the device of batch.start, with the flag in the first segment.
  ForwardInput input(const Batch& batch, Device device, const Model& model) const;
  // Stores the detached state after a batch.
  void update(const State& after, const Batch& batch);
};

}  // namespace eddy::training
