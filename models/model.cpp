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

std::int64_t Model::table_elements() const {
  return (config_.positions ? config_.context * config_.dim : 0) +
         (config_.tied ? 0 : config_.vocab * config_.dim);
}

const ModelEntry& model_entry(const ModelConfig& config) {
  std::string known;
  for (const ModelEntry& entry : model_registry()) {
    if (entry.family == config.family && entry.model == config.model) return entry;
    known += fmt::format("{}{}/{}", known.empty() ? "" : ", ", entry.family, entry.model);
  }
  fail<ConfigError>("model: {}/{} is not in this build (it has: {})", config.family, config.model, known);
}

std::vector<std::string> example_models() {
  std::vector<std::string> names;
  for (const ExampleOf kind : {ExampleOf::recurrence, ExampleOf::plain_attention})
    for (const ModelEntry& entry : model_registry())
      if (entry.example == kind) names.emplace_back(entry.model);
  return names;
}

std::unique_ptr<Model> make_unallocated_model(const ModelConfig& config) {
  const ModelConfig full = resolved(config);
  ParamStore counted;
  std::unique_ptr<Model> model = model_entry(full).make(full, counted.root());
  model->params_ = std::move(counted);
  return model;
}

ParamStore count_parameters(const ModelConfig& config) {
  return std::move(make_unallocated_model(config)->params());
}

std::unique_ptr<Model> make_model(const ModelConfig& config, Dtype dtype, Device device) {
  const std::unique_ptr<Model> counted = make_unallocated_model(config);
  ParamStore store(counted->params(), dtype, device);
  std::unique_ptr<Model> model = model_entry(counted->config()).make(counted->config(), store.root());
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
