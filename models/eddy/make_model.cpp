// Making models by name.
#include <fmt/ranges.h>

#include <algorithm>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "ops/cost/counting.h"
#include "tensor/base/format.h"

namespace eddy {

const ModelEntry& model_entry(const ModelConfig& config) {
  std::string known;
  for (const ModelEntry& entry : model_registry()) {
    if (entry.family == config.family && entry.model == config.model) return entry;
    known += fmt::format("{}{}/{}", known.empty() ? "" : ", ", entry.family, entry.model);
  }
  fail<ConfigError>("model: {}/{} is not in this build (it has: {})", config.family, config.model, known);
}

const ModelEntry& main_model(std::string_view family) {
  const ModelEntry* first = nullptr;
  for (const ModelEntry& entry : model_registry()) {
    if (entry.family != family) continue;
    if (entry.traits.example == ExampleOf::recurrence) return entry;
    if (first == nullptr) first = &entry;
  }
  if (first != nullptr) return *first;
  fail<ConfigError>("model: the family {} is not in this build (it has: {})", family,
                    fmt::join(family_list(), ", "));
}

bool carries_state(ModelConfig config) {
  config.vocab = std::max<std::int64_t>({config.vocab, config.n_out, 2});  // of a text that is not read yet
  if (config.params > 0) config.dim = 16 * config.heads;                   // any width will do
  config.params = 0;
  // How many layers there are decides nothing, and a call of tens of thousands takes a minute.
  constexpr std::int64_t kEnoughLayers = 64;
  if (config.layers > kEnoughLayers) {
    config.layers = kEnoughLayers;
    model_entry(config).fit_to_sizes(config);
  }
  const Device device = counting_device();
  const std::unique_ptr<Model> model = make_model(config, Dtype::f32, device);
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = Tensor::empty({1, segment_of(config)}, Dtype::i64, device);
  input.tail = 1;
  return !model->forward(input).state.empty();
}

std::vector<std::string> example_models() {
  std::vector<std::string> names;
  for (const ExampleOf kind : {ExampleOf::recurrence, ExampleOf::plain_attention})
    for (const ModelEntry& entry : model_registry())
      if (entry.traits.example == kind) names.emplace_back(entry.model);
  return names;
}

std::unique_ptr<Model> make_unallocated_model(const ModelConfig& config) {
  const ModelConfig full = resolved(config);
  ParamStore counted;
  std::unique_ptr<Model> model = model_entry(full).make(full, counted.root());
  model->full_config_ = std::make_shared<const ModelConfig>(full);
  model->params_ = std::move(counted);
  return model;
}

ParamStore count_parameters(const ModelConfig& config) {
  return std::move(make_unallocated_model(config)->params());
}

std::unique_ptr<Model> make_model(const ModelConfig& config, Dtype dtype, Device device,
                                  MatmulPrecision precision) {
  const std::unique_ptr<Model> counted = make_unallocated_model(config);
  ParamStore store(counted->params(), dtype, device, precision);
  const ModelConfig& full = counted->full_config();
  std::unique_ptr<Model> model = model_entry(full).make(full, store.root());
  model->full_config_ = counted->full_config_;
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

std::int64_t stream_bytes(const ModelConfig& config, std::int64_t time) {
  const Device device = counting_device();
  const std::unique_ptr<Model> model = make_model(config, Dtype::f32, device);
  const NoGrad no_grad;
  State state;
  const std::int64_t remaining = model->remaining_context(state);
  static_cast<void>(model->stream(
      Tensor::empty({1, remaining < 0 ? time : std::min(time, remaining)}, Dtype::i64, device), state));
  return state.bytes();
}

}  // namespace eddy
