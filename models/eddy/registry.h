// The registry: all families and all models, how a program adds its own, and the making of a model from its config.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
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
  const char* name;                                      // of its folder
  std::type_index keys;                                  // the type of the struct of its keys
  void (*describe)(KeyList&, ModelConfig&);              // declares its keys
  void (*check)(const ModelConfig&);                     // rules between keys
  void (*choose_sizes)(ModelConfig&, const GivenKeys&);  // sizes that nobody gave, for this family's models
  void (*fill)(ModelConfig&);  // defaults that depend on other keys, for the models of all families
};
// All families, in the order of their first models.
std::span<const FamilyEntry> family_registry();

// A model's name with its family.
struct ModelName {
  const char *family, *model;  // as model.family and model.model name them
};
// One entry of the registry.
struct ModelEntry : ModelName {
  const char* summary;  // a line for `eddy models`
  ModelTraits traits;   // what the registry may know of it
  // Makes the model with parameters of this scope.
  std::function<std::unique_ptr<Model>(const ModelConfig&, const ParamScope&)> make;
  // Makes the keys that follow from sizes fit those of a config, whose sizes a program has chosen.
  std::function<void(ModelConfig&)> fit_to_sizes;
};
// All models: those that the families of this build list, then those that a program registered.
std::span<const ModelEntry> model_registry();

// Adds a model to all that know models by name: configuration files, flags, help, training, generation, tables. Call it
// before the first configuration is made, as at the beginning of main; texts live as long as the program.
//
// M derives from FamilyModel<Keys>, and its constructor takes (const FamilyConfig<Keys>&, const ParamScope&). A family
// comes with its first model. Beside Keys, in its namespace, stand what there is of:
//
//   void describe(KeyList&, Keys&)                                   its keys (models/config_keys.h), if it has any;
//                                                                    without read_by they are those of this family
//   void check(const FamilyConfig<Keys>&)                            rules between keys; throws ConfigError
//   void choose_sizes(FamilyConfig<Keys>&, const GivenKeys&)         sizes that nobody gave
//   void fill(FamilyConfig<Keys>&)                                   defaults that depend on other keys
//
// errors: ConfigError for a name that is taken or has other characters than a-z, 0-9 and _, for a family of other keys,
// and for a key that is described already.
template <class M>
void register_model(const ModelName& name, const char* summary, const ModelTraits& traits = {});

// Returns the entry of the config's model.
// errors: ConfigError when there is none.
const ModelEntry& model_entry(const ModelConfig& config);
// Returns the model that a family is known by: its first example of a recurrence, or else its first model.
// errors: ConfigError for a family that is not in this build.
const ModelEntry& main_model(std::string_view family);
// Whether a model's calls leave a state to the next one: found by a call without values.
// errors: those of make_model and forward.
bool carries_state(ModelConfig config);
// Returns the names of one model of each recurrence, then of a transformer without one.
std::vector<std::string> example_models();

// Refuses what cannot be the name of a model, a family or a task in files, flags and descriptions; `what` begins its
// text.
// errors: ConfigError.
void check_new_name(const char* what, std::string_view name);

// ---- the registry's side of register_model

namespace detail {

// Lets `change` change the part of a config that a family's models see.
template <class Keys, class Change>
void change_part(ModelConfig& config, Change change) {
  auto part = part_of<FamilyConfig<Keys>>(config);
  change(part);
  static_cast<CommonKeys&>(config) = part;
  keys_in<Keys>(config) = part;
}

template <class Keys>
FamilyEntry family_entry(const char* name) {
  using Config = FamilyConfig<Keys>;
  return {name,
          typeid(Keys),
          [](KeyList& keys, ModelConfig& config) {
            if constexpr (!std::is_empty_v<Keys>) describe(keys, keys_in<Keys>(config));
          },
          [](const ModelConfig& config) {
            if constexpr (requires(const Config& c) { check(c); }) check(part_of<Config>(config));
          },
          [](ModelConfig& config, const GivenKeys& given) {
            if constexpr (requires(Config & c) { choose_sizes(c, given); })
              change_part<Keys>(config, [&](Config& part) { choose_sizes(part, given); });
          },
          [](ModelConfig& config) {
            if constexpr (requires(Config & c) { fill(c); })
              change_part<Keys>(config, [](Config& part) { fill(part); });
          }};
}

template <class Keys>
ModelEntry model_entry(const char* family, const ListedModel<Keys>& model) {
  return {{family, model.name},
          model.summary,
          model.traits,
          [make = model.make](const ModelConfig& config, const ParamScope& scope) {
            return make(part_of<FamilyConfig<Keys>>(config), scope);
          },
          [fit = model.fit_to_sizes](ModelConfig& config) {
            if (fit != nullptr) change_part<Keys>(config, fit);
          }};
}

// errors: as register_model.
void add_model(const FamilyEntry& family, const ModelEntry& model);

}  // namespace detail

template <class M>
void register_model(const ModelName& name, const char* summary, const ModelTraits& traits) {
  detail::add_model(detail::family_entry<typename M::FamilyKeys>(name.family),
                    detail::model_entry(name.family, listed<M>(name.model, summary, traits)));
}

}  // namespace eddy
