// The registry: every model by family and name, and the papers' configurations.
#include "autograd/tape.h"
#include "models/model.h"
#include "models/recurrent_transformer.h"
#include "tensor/format.h"

namespace eddy {

const std::vector<ModelEntry>& model_registry() {
  static const std::vector<ModelEntry> entries{
      {"recurrent_transformer", "unit_forget", "unit recurrence with forget: state of one position",
       [](const ModelConfig& c, ParamScope s) -> std::unique_ptr<Model> {
         return std::make_unique<UnitForget>(c, s);
       }},
      {"recurrent_transformer", "regular", "the regular causal transformer",
       [](const ModelConfig& c, ParamScope s) -> std::unique_ptr<Model> {
         return std::make_unique<RegularTransformer>(c, s);
       }},
  };
  return entries;
}

namespace {

const ModelEntry& entry_of(const ModelConfig& config) {
  std::string known;
  for (const ModelEntry& entry : model_registry()) {
    if (entry.family == config.family && entry.model == config.model) return entry;
    known += (known.empty() ? "" : ", ") + entry.family + "/" + entry.model;
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

std::vector<NamedConfig> paper_configs() {
  ModelConfig unit;  // Shakespeare: d 384, 6 heads, 256 positions, 65 characters
  unit.vocab = 65;
  unit.dropout = 0.2;
  ModelConfig unit_positions = unit;
  unit_positions.positions = true;
  ModelConfig regular_1 = unit_positions;
  regular_1.model = "regular";
  ModelConfig regular_6 = regular_1;
  regular_6.layers = 6;
  ModelConfig cifar = regular_1;
  cifar.vocab = 256;
  cifar.n_out = 10;
  cifar.context = 1024;
  cifar.dim = 32;
  cifar.heads = 4;
  cifar.layers = 4;
  cifar.tied = false;
  cifar.activation = "relu";
  cifar.readout = "last";
  cifar.dropout = 0.05;
  return {{"shakespeare_unit", unit, 1'795'584},
          {"shakespeare_unit_pos", unit_positions, 1'893'888},
          {"shakespeare_regular_1", regular_1, 1'893'888},
          {"shakespeare_regular_6", regular_6, 10'745'088},
          {"cifar_regular", cifar, 90'720}};
}

}  // namespace eddy
