// The config keys of this family: their description, and the rules between them.
#pragma once

#include "models/config.h"
#include "models/config_keys.h"

namespace eddy::blockwise_recurrent {

void describe(KeyList& keys, ModelConfig& config);
// errors: ConfigError naming the keys and their values.
void check(const ModelConfig& config);
// Fills in defaults that depend on other keys, and resets keys of this family that the model does not read. Called for
// the models of all families.
void fill(ModelConfig& config);

}  // namespace eddy::blockwise_recurrent
