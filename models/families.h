// What the entries.cpp of each family defines: its entries in the registry, and the rules between its config
// keys. A new family adds lines here, in registry.cpp and in config.cpp.
#pragma once

#include <memory>
#include <vector>

#include "models/model.h"

namespace eddy {

// An entry of the registry for models of class M.
template <class M>
ModelEntry model_entry(const char* family, const char* model, const char* summary) {
  return {family, model, summary, [](const ModelConfig& config, ParamScope scope) -> std::unique_ptr<Model> {
            return std::make_unique<M>(config, scope);
          }};
}

// Entries of the registry.
std::vector<ModelEntry> recurrent_transformer_models();
std::vector<ModelEntry> block_recurrent_models();
std::vector<ModelEntry> blockwise_recurrent_models();
std::vector<ModelEntry> staircase_models();

// Check the rules between the family's keys.
// errors: ConfigError naming the keys and their values.
void check_block_recurrent(const ModelConfig& config);
void check_blockwise_recurrent(const ModelConfig& config);
void check_staircase(const ModelConfig& config);

}  // namespace eddy
