// Where a value came from that is not finite: the op, module or parameter, found by computing again.
#pragma once

#include <cstddef>
#include <string>

#include "train/step/step_inputs.h"

namespace eddy::training {

// Why the loss of micro-batch `bad` of a step, counted over all ranks, is not finite. The rank that has it computes it
// again, after those of its rows before it, with every result checked, and tells rank 0; others return "". `before`
// is the state that the step began from.
// errors: those of the model and of Ranks::exchange.
std::string explain_loss(const Model& model, const StepInputs& inputs, std::size_t bad,
                         const CarriedState& before);

// Which parameter's gradient is not finite. `norms`: of each parameter's gradient, where the step computed them; a
// rank may have no gradient to look at.
std::string explain_gradient(const Model& model, const Tensor& norms);

// Whether all tensors of a state are finite.
bool is_finite(const State& state);

}  // namespace eddy::training
