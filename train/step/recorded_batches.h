// What recordings of batches share (captured_step.h, captured_eval.h): their kind as a text, and places for
// the state they read.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "train/step/batch.h"

namespace eddy {

// Equal for batches and states for which the host does the same: equal shapes and block sizes, whether some
// or all rows begin anew, and tensors of the state on the host with the same contents. New tokens, which rows
// begin, and numbers on the device make no other kind.
std::string kind_text(const std::vector<Batch>& batches, const State& state);

// Tensors of the same names and layouts: on the device with memory of their own, uninitialised; those on the
// host copied, since the host decides by them.
State places_for(const State& state);
// Copies a state to its places on the device, unless it lies there.
void put_state(const State& places, const State& state);

// Makes the copy of the parameters in bf16, where the model has one and it is of older values.
void round_values(const ParamStore& params);

}  // namespace eddy
