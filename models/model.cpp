// Making models by name, and what all models share.
#include "models/model.h"

#include "autograd/tape.h"
#include "ops/cost/counting.h"
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

namespace {

const ModelEntry& entry_of(const ModelConfig& config) {
  std::string known;
  for (const ModelEntry& entry : model_registry()) {
    if (entry.family == config.family && entry.model == config.model) return entry;
    known += fmt::format("{}{}/{}", known.empty() ? "" : ", ", entry.family, entry.model);
  }
  fail<ConfigError>("model: {}/{} is not in this build (it has: {})", config.family, config.model, known);
}

}  // namespace

ParamStore count_parameters(const ModelConfig& config) {
  const ModelConfig full = resolved(config);
  ParamStore counted;
  entry_of(full).make(full, counted.root());
  return counted;
}

std::unique_ptr<Model> make_model(const ModelConfig& config, Dtype dtype, Device device) {
  const ModelConfig full = resolved(config);
  const ModelEntry& entry = entry_of(full);
  ParamStore counted;
  entry.make(full, counted.root());
  ParamStore store(counted, dtype, device);
  std::unique_ptr<Model> model = entry.make(full, store.root());
  model->params_ = std::move(store);
  return model;
}

Cost forward_cost(const ModelConfig& config, std::int64_t time, bool carried, std::int64_t tail) {
  const Device device = counting_device();
  const std::unique_ptr<Model> model = make_model(config, Dtype::f32, device);
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = Tensor::empty({1, time}, Dtype::i64, device);
  input.tail = tail;
  if (carried) input.state = model->forward(input).state;
  return counted([&] { static_cast<void>(model->forward(input)); });
}

}  // namespace eddy
