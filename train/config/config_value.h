// One value of a described key: its rule in words, the check, parsing from a text, and assignment to the
// struct. Internal to train/config/.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/config/config.h"

namespace eddy {

// The rule of a key, in words.
std::string rule_of(const ConfigField& field);

// Checks a value against the rule of its key.
// errors: ConfigError "place: key: value (rule)" for a wrong type, a value out of range or one that is not
// allowed.
void check_value(const ConfigField& field, const nlohmann::json& value, const std::string& place);

// The JSON value of a flag's text; a list is written "1,2,3".
// errors: ConfigError when the type is wrong.
nlohmann::json value_from_text(const ConfigField& field, const std::string& text, const std::string& place);

// Assigns a checked value to the struct.
void assign_value(const ConfigField& field, const nlohmann::json& value);

}  // namespace eddy
