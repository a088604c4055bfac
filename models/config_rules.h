// The checks of the families' config keys, which are parts of validate(), and the simple rules that they are
// made of.
#pragma once

#include <initializer_list>
#include <utility>

#include "models/config.h"

namespace eddy::rules {

// errors, of all: ConfigError naming model.<key>, its value and the rule.
void at_least(std::int64_t least, std::initializer_list<std::pair<const char*, std::int64_t>> keys);
void one_of(const char* key, const std::string& value, std::initializer_list<const char*> allowed);
// The value of a dropout rate must be in [0, 1).
void below_one(const char* key, double value);
// For the families whose heads have the width dim / heads, in which keys have as many heads as queries, and in
// which the head may be the token table.
void width_of_heads(const ModelConfig& config);
void one_kind_of_heads(const ModelConfig& config);
void tied_head(const ModelConfig& config);

// The rules of each family: its rules.cpp.
// errors: ConfigError naming the keys and their values.
void check_block_recurrent(const ModelConfig& config);
void check_blockwise_recurrent(const ModelConfig& config);
void check_staircase(const ModelConfig& config);

}  // namespace eddy::rules
