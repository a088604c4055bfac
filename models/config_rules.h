// Rules between config keys that several families have.
#pragma once

#include "models/config.h"

namespace eddy::rules {

// errors, of all: ConfigError naming the keys and their values.
// For the families whose heads have the width dim / heads, in which keys have as many heads as queries, and in
// which the head may be the token table.
void width_of_heads(const ModelConfig& config);
void one_kind_of_heads(const ModelConfig& config);
void tied_head(const ModelConfig& config);

}  // namespace eddy::rules
