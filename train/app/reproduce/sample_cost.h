// What one example costs, as Kausik, "Recurrent transformers" (2025), counts it, and as the forward pass does it.
#pragma once

#include <string_view>
#include <vector>

#include "train/app/reproduce/run.h"

namespace eddy::app {

// The columns that add_sample_cost fills in.
inline constexpr std::string_view kSampleColumns[] = {"batch", "recurrent_steps", "paper_operations",
                                                      "sample_operations"};

// Adds these numbers to result.values. `config` is that of the run, with the sizes that the data give. A copy task's
// example has the noise that the curriculum came to, which result.values then has.
void add_sample_cost(const training::RunConfig& config, RowResult& result);

}  // namespace eddy::app
