// Copying parameters from and to named tensors, as they stand in files.
#pragma once

#include <map>
#include <string>

#include "models/params.h"

namespace eddy {

// Copies every parameter's value from `tensors`, by exact name and shape, cast to the store's dtype.
// errors: FormatError that lists all missing, unexpected and mis-shaped names at once; then nothing is
// copied.
void load_parameters(ParamStore& params, const std::map<std::string, Tensor>& tensors,
                     const std::string& file);

// All parameter values by name.
std::map<std::string, Tensor> parameter_map(const ParamStore& params);

}  // namespace eddy
