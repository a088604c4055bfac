// What captured steps and captured evaluations (captured_step.h, train/eval/captured_eval.h) share: the kind
// of a batch as a text, and memory for the state that a graph reads.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "train/step/batch.h"

namespace eddy {

// Returns the kind of batches and a state as a text: it is equal if the host does the same work. It covers
// shapes and block sizes, whether some or all rows restart, and the contents of state tensors on the host.
// Tokens, which rows restart, and values on the device are not part of it.
std::string capture_key(const std::vector<Batch>& batches, const State& state);

// Returns a state with the same names and layouts. Tensors on the device have new, uninitialised memory;
// tensors on the host are copied, because the host's decisions depend on them.
State state_buffers_like(const State& state);
// Copies the device tensors of a state into such memory, unless they are already there.
void copy_state_into(const State& places, const State& state);

// Updates the parameters' bf16 copy, if the model has one and it is out of date.
void update_bf16_copy(const ParamStore& params);

}  // namespace eddy
