// What all models share.
#include "models/model.h"

#include "tensor/base/format.h"

namespace eddy {

Model::~Model() = default;

std::vector<std::int64_t> Model::counts_of(const State& state) {
  std::vector<std::int64_t> counts;
  for (const auto& [name, tensor] : state) {
    if (!(tensor.device() == kCpu) || tensor.dtype() != Dtype::i64) continue;
    for (const std::int64_t number : raw::contiguous(tensor).to_vector<std::int64_t>())
      counts.push_back(number);
  }
  return counts;
}

void Model::check_tokens(const Tensor& tokens) const {
  if (!tokens.defined() || tokens.rank() != 2)
    fail<ShapeError>("{}: tokens have shape {} ([batch, time])", config().model,
                     tokens.defined() ? to_string(tokens.shape()) : "none");
  if (tokens.dim(0) == 0 || tokens.dim(1) == 0)
    fail<ShapeError>("{}: no tokens: {} (at least one row of one token)", config().model,
                     to_string(tokens.shape()));
}

}  // namespace eddy
