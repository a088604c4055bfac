// Loading checks everything before the first value changes.
#include "models/weights.h"

#include <fmt/ranges.h>
#include <set>
#include <vector>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"

namespace eddy {

void save_weights(const ParamStore& params, const std::string& path) {
  save_safetensors(path, parameter_map(params));
}

void load_weights(ParamStore& params, const std::string& path) {
  load_parameters(params, load_safetensors(path), path);
}

void load_parameters(ParamStore& params, const std::map<std::string, Tensor>& tensors,
                     const std::string& file) {
  std::vector<std::string> problems;
  std::set<std::string> reasons;
  for (const Parameter& parameter : params.parameters()) {
    const auto found = tensors.find(parameter.name);
    if (found == tensors.end())
      problems.push_back(fmt::format("{} {} is missing", parameter.name, to_string(parameter.shape)));
    else if (found->second.shape() != parameter.shape)
      problems.push_back(fmt::format("{} is {} in the file and {} in the model", parameter.name,
                                     to_string(found->second.shape()), to_string(parameter.shape)));
    else if (!is_floating(found->second.dtype()))
      problems.push_back(
          fmt::format("{} holds {} (a floating type)", parameter.name, dtype_name(found->second.dtype())));
  }
  for (const auto& [name, tensor] : tensors)
    if (params.find(name) == nullptr) {
      problems.push_back(fmt::format("{} {} is not in the model", name, to_string(tensor.shape())));
      if (const auto omitted = params.omitted().find(name); omitted != params.omitted().end())
        reasons.insert(omitted->second);
    }
  if (!problems.empty())
    fail<FormatError>("weights: {} does not fit the model: {}{}{}{}", file, fmt::join(problems, "; "),
                      reasons.empty() ? "" : " (", fmt::join(reasons, "; "), reasons.empty() ? "" : ")");
  for (const Parameter& parameter : params.parameters()) {
    raw::copy_into(detach(parameter.value),
                   raw::to_device(raw::cast(tensors.at(parameter.name), parameter.value.dtype()),
                                  parameter.value.device()));
    wrote_in_place(parameter.value, "load_parameters");
  }
}

std::map<std::string, Tensor> parameter_map(const ParamStore& params) {
  std::map<std::string, Tensor> tensors;
  for (const Parameter& parameter : params.parameters())
    tensors.emplace(parameter.name, detach(parameter.value));
  return tensors;
}

}  // namespace eddy
