// The configuration of any model: the common keys and those of every family. train/ fills it from files and flags.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "models/config.h"
#include "models/eddy/extension_keys.h"
#include "models/eddy/families.h"

namespace eddy {

#define EDDY_KEYS_OF(family) , family::Keys
// All keys of a model, whatever its family.
struct ModelConfig : CommonKeys EDDY_FAMILIES(EDDY_KEYS_OF) {
  ExtensionKeys extensions;  // the keys of families that a program registered

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};
#undef EDDY_KEYS_OF

// The keys of a family in a config: keys_in<staircase::Keys>(config).
template <class Keys>
Keys& keys_in(ModelConfig& config) {
  if constexpr (std::is_base_of_v<Keys, ModelConfig>)
    return config;
  else
    return config.extensions.get<Keys>();
}
template <class Keys>
const Keys& keys_in(const ModelConfig& config) {
  if constexpr (std::is_base_of_v<Keys, ModelConfig>)
    return config;
  else
    return config.extensions.get<Keys>();
}

// The part of a config that a family's models see: part_of<staircase::Config>(config).
template <class Config>
Config part_of(const ModelConfig& config) {
  return {config, keys_in<typename Config::FamilyKeys>(config)};
}

// The families and the models, each once, in the order of model_registry() (registry.h).
std::vector<std::string> family_list();
std::vector<std::string> model_list();

// Describes the keys, each once.
void describe(KeyList& keys, ModelConfig& config);

// Whether the config's model reads a key: "block" says whether a model works in blocks.
bool reads_key(const ModelConfig& config, std::string_view key);

// The positions that give logits: model.readout, or its default where the model does not read it.
std::string readout_of(const ModelConfig& config);

// Lets one of family and model follow from the other where only that one was given: a model has one family, and a
// family's name alone stands for its main model.
void imply_names(ModelConfig& config, bool gave_family, bool gave_model);

// Sets the sizes that are not given to ones that suit the model and the sizes given: windows smaller than a segment,
// states, chunks, recurrent layers, and heads that divide a width. For new runs: a saved config has all its keys.
void choose_sizes(ModelConfig& config, const GivenKeys& given);

// The models that read a key, for a hint: "slide, xl", "all models but lstm".
std::string models_that_read(const ConfigField& field);

// Checks the rule of each key, and the rules between keys: sizes that must divide each other, switches that
// exclude each other.
// errors: ConfigError naming the keys and their values. A vocab of 0 is an error: set the tokenizer's count
// first.
void validate(const ModelConfig& config);

// Sets the keys that the model does not read to their defaults.
void reset_unread(ModelConfig& config);

// Fills in every default that depends on other keys (n_out, kv_heads, head_dim, ...).
void fill(ModelConfig& config);

// The config with its width found (fit_params), unread keys reset and dependent defaults filled in.
// errors: as validate.
ModelConfig resolved(ModelConfig config);

}  // namespace eddy
