// Which parameters no gradient can reach, as a run calls its model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/step/batch.h"

namespace eddy::training {

struct Unreached {
  std::vector<std::string> names;
  std::int64_t elements = 0;
};

// Returns the parameters that get no gradient from batches of this one's shape, found by steps without values
// (ops/cost/counting.h): from a cold start and, with carry_state, also from a state that a call before left.
// errors: those of make_model and forward.
Unreached unreached_parameters(const ModelConfig& config, const Batch& batch, bool carry_state);

// The warning about them, with what carrying the state would change; "" if every parameter gets a gradient.
std::string unreached_warning(const ModelConfig& config, const Batch& batch, bool carry_state);

// The warning that a recurrent model in such training never reads what it wrote into its state, because rows of `time`
// tokens end where it is written and nothing is carried on; else "".
std::string unread_state_warning(const Model& model, std::int64_t time, bool carry_state);

}  // namespace eddy::training
