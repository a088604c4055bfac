// What the papers count of a model: how often it computes its layers, and operations by their formulas.
#pragma once

#include <cstdint>

#include "models/eddy/config.h"

namespace eddy {

// How often a token passes through the layers: N of a staircase, M of a cached one, the repeats of a ladder or a
// universal transformer; 1 of all others.
std::int64_t recurrent_steps(const ModelConfig& config);

// The operations of a sample of `tokens` tokens by the formulas of the model's paper
// (models/recurrent_transformer/paper_operations.h); NaN where that has none.
double paper_operations(const ModelConfig& config, std::int64_t tokens);

}  // namespace eddy
