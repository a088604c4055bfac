// The registry: all families and all models of this build, and the making of a model from its config.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/eddy/config.h"
#include "models/model.h"

namespace eddy {

// Returns the configured model; its parameters are allocated but not initialised.
// dtypes: `dtype` is that of activations and products. With bf16, parameters, gradients and states are f32, but
// keys, values and inputs of layers in a state are bf16.
// precision: of all products of f32 in the model.
// errors: ConfigError for an unknown model or sizes that contradict each other.
std::unique_ptr<Model> make_model(const ModelConfig& config, Dtype dtype = Dtype::f32, Device device = kCpu,
                                  MatmulPrecision precision = MatmulPrecision::f32);

// Returns a model that answers questions but computes nothing: its parameters are counted, not allocated.
// errors: as make_model.
std::unique_ptr<Model> make_unallocated_model(const ModelConfig& config);

// Returns the parameters of such a model, counted but not allocated.
ParamStore count_parameters(const ModelConfig& config);

// Returns the work of one forward pass over [1, time] tokens in training, counted by running it without values
// (ops/cost/counting.h).
// carried: whether the call continues from the state of an equal call before it, if the model has a state.
// tail: the number of scored positions with readout "tail".
// errors: those of make_model and forward.
Cost forward_cost(const ModelConfig& config, std::int64_t time, bool carried = true, std::int64_t tail = 1);

// Returns the bytes that one stream of a model keeps after `time` tokens, in f32: a state, and a cache of what it read.
// Found as forward_cost is.
// errors: those of make_model and stream.
std::int64_t stream_bytes(const ModelConfig& config, std::int64_t time);

// One family: what its config.cpp says of its keys.
struct FamilyEntry {
  const char* name;
  void (*describe)(KeyList&, ModelConfig&);
  void (*check)(const ModelConfig&);                     // rules between keys
  void (*choose_sizes)(ModelConfig&, const GivenKeys&);  // sizes that nobody gave, for this family's models
  void (*fill)(ModelConfig&);  // defaults that depend on other keys, for the models of all families
};
// All families of this build (registry.cpp).
std::span<const FamilyEntry> family_registry();

// A model's name with its family.
struct ModelName {
  const char *family, *model;
};
// What a model is an example of, where one of each is shown.
enum class ExampleOf { nothing, recurrence, plain_attention };
// One entry of the registry.
struct ModelEntry : ModelName {
  const char* summary;
  ExampleOf example;
  std::unique_ptr<Model> (*make)(const ModelConfig&, ParamScope);
  // Makes the keys that follow from sizes fit those of a config, whose sizes a program has chosen.
  void (*fit_to_sizes)(ModelConfig&);
};
// All models of this build (registry.cpp).
std::span<const ModelEntry> model_registry();
// Returns the entry of the config's model.
// errors: ConfigError when there is none.
const ModelEntry& model_entry(const ModelConfig& config);
// Returns the model that a family is known by: its first example of a recurrence.
// errors: ConfigError for a family that is not in this build.
const ModelEntry& main_model(std::string_view family);
// Whether a model's calls leave a state to the next one: found by a call without values.
// errors: those of make_model and forward.
bool carries_state(ModelConfig config);
// Returns the names of one model of each recurrence, then of a transformer without one.
std::vector<std::string> example_models();

}  // namespace eddy
