// A model of a given number of parameters: its width, and where that is too coarse the width inside its MLP.
#pragma once

#include "models/eddy/config.h"

namespace eddy {

// Does nothing if model.params is 0. Else sets model.dim to a width at which the model has that many parameters, within
// 3 %, and model.params to 0: what a config then says is the model. Among such widths those are preferred that are
// multiples of 16 numbers for each head, then of 8, 4 and 2. Where no width comes near enough, model.mlp_dim is set
// too. The vocabulary must be known.
// errors: ConfigError if neither comes near enough, with the nearest counts below and above.
void fit_params(ModelConfig& config);

}  // namespace eddy
