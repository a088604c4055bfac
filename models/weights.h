// Weights in safetensors files and in maps of named tensors: those of Eddy, and those that PyTorch wrote or
// shall read. Tensors keep the parameters' names.
#pragma once

#include <map>
#include <string>

#include "models/params.h"

namespace eddy {

// Writes all parameters to a safetensors file, whole or not at all.
// errors: IoError when writing fails, with the old file untouched.
void save_weights(const ParamStore& params, const std::string& path);

// Reads all parameters from a safetensors file, by exact name and shape, cast to the store's dtype.
// errors: as load_safetensors and load_parameters; then nothing is changed.
void load_weights(ParamStore& params, const std::string& path);

// Copies every parameter's value from `tensors`, by exact name and shape, cast to the store's dtype. `file`
// is the name in errors.
// errors: FormatError that lists all missing, unexpected and mis-shaped names at once; then nothing is
// copied.
void load_parameters(ParamStore& params, const std::map<std::string, Tensor>& tensors,
                     const std::string& file);

// All parameter values by name. They share the store's bytes.
std::map<std::string, Tensor> parameter_map(const ParamStore& params);

}  // namespace eddy
