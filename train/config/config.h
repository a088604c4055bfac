// Reading described structs (models/config_keys.h) from files and flags, and writing them as JSON. Files have one
// table per section; flags are `--train.steps 100`.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/config_keys.h"

namespace eddy::training {

struct ConfigSource;  // a config as it was read: train/config/config_file.h

// The struct's current value of a key: as JSON, and as a flag gives it.
nlohmann::json value_of(const ConfigField& field);
std::string text_of(const ConfigField& field);
// A value as an error shows it. Tables are not printed: they can be long.
std::string shown_value(const nlohmann::json& value);
// Whether a value has the key's type.
bool has_type(const ConfigField& field, const nlohmann::json& value);
// Checks a value against the key's rule, and assigns one that was checked.
// errors: ConfigError "place: key: value (rule)" for a wrong type, and a value that is not allowed.
void check_value(const ConfigField& field, const nlohmann::json& value, const std::string& place);
void assign_value(const ConfigField& field, const nlohmann::json& value);
// The JSON value of a flag's text; a list is written "1,2,3", and a whole number may have a unit: "2m" (count_from in
// train/words/human_text.h).
// errors: ConfigError for a wrong type.
nlohmann::json read_value(const ConfigField& field, const std::string& text, const std::string& place);

// The described keys of one or more structs, which can be read and written.
class ConfigKeys : public KeyList {
 public:
  // Writes the values of a config into the structs; missing keys keep their values. Everything is checked
  // before anything changes.
  // errors: ConfigError with the place, the key, the value and the rule; for an unknown key the nearest known
  // one.
  void read(const ConfigSource& source);
  // Writes values given as texts, full key to text, as command line flags give them.
  // errors: as read.
  void read_texts(const std::map<std::string, std::string>& texts);
  // All values as JSON, one object per section.
  nlohmann::json to_json() const;

 private:
  const ConfigField* find(const std::string& full_key) const;
};

// The keys of a described struct.
template <class C>
ConfigKeys keys_of(C& config) {
  ConfigKeys keys;
  describe(keys, config);
  return keys;
}

// Returns the keys whose values differ between two structs of one type, by full key, with the field of each.
std::map<std::string, std::pair<ConfigField, ConfigField>> differences(const KeyList& a, const KeyList& b);

}  // namespace eddy::training
