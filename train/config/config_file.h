// Config files, TOML or JSON by the file's ending, parsed into one JSON value with the place of every key.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "train/config/config.h"

namespace eddy::training {

// A config as it was read. `places` maps "section.key" (or "section", or "row.0.model.dim" with the number of an entry
// of a list) to its place, such as "run.toml:3:1", for error texts.
struct ConfigSource {
  std::string name;
  nlohmann::json value;
  std::map<std::string, std::string> places;

  // The most exact place known for a key.
  std::string place(const std::string& full_key) const;
  // The value under a key such as "row.0.model", with the places in it; an empty object where there is none.
  ConfigSource part(const std::string& key) const;
};

// The content of a config file; a byte order mark is dropped, and UTF-16 behind one is read.
// errors: IoError when it cannot be read; FormatError for UTF-16 without a mark; ConfigError with file:line:column when
// it is not TOML (.toml) or JSON (.json), is larger than a megabyte, or nests deeper than 16 tables.
ConfigSource read_config_file(const std::string& path);

// The content of a config file of a run: one whose keys stand at the top, as a model's, as one with a [model] table.
// errors: as read_config_file.
ConfigSource read_run_config(const std::string& path);

// The same from a text; errors call it `name`.
ConfigSource config_from_toml(std::string_view text, const std::string& name);
ConfigSource config_from_json(std::string_view text, const std::string& name);

// Reads a table of data into described keys, which all stand in it, whatever their section: a file, an entry of a list.
// Missing keys keep their values. Lists of tables are filled as they are read; everything else is checked first.
// errors: ConfigError with the place: an unknown key with the nearest one and all, a value of another type or out of
// its range, and a required key that is missing.
void read_table(const KeyList& keys, const ConfigSource& source);

// The struct that a table of data gives.
template <class T>
T read_as(const ConfigSource& source) {
  T made{};
  KeyList keys;
  describe(keys, made);
  read_table(keys, source);
  return made;
}

}  // namespace eddy::training
