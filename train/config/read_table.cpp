// Reads tables of data: keys, tables within tables, and lists of tables, as a KeyList describes them.
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/config/config_file.h"

namespace eddy::training {
namespace {

using nlohmann::json;

std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

// A path without the numbers of entries: "row.model" of "row.2.model".
std::string section_of(const std::string& path) {
  std::string section;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (!std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      section = joined(section, part);
    begin = end + 1;
  }
  return section;
}

template <class Entry>
const Entry* named(const std::vector<Entry>& entries, const std::string& key) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

class TableReader {
 public:
  explicit TableReader(const ConfigSource& file) : file_(file) {}

  // Reads the table that stands at `path`; "": the whole file.
  void read(const KeyList& keys, const json& table, const std::string& path) const {
    if (!table.is_object())
      fail<ConfigError>("{}: {} is {} (a table of keys)", file_.place(path),
                        path.empty() ? "the file" : section_of(path), shown_value(table));
    std::vector<std::pair<const ConfigField*, const json*>> checked;
    for (const auto& [key, value] : table.items()) {
      const std::string at = joined(path, key);
      if (const ConfigField* const field = named(keys.fields(), key)) {
        check_value(*field, value, place_of(*field, value, at));
        checked.emplace_back(field, &value);
      } else if (const ConfigTable* const inner = named(keys.tables(), key)) {
        read_inner(*inner, value, at);
      } else {
        check_known(keys, key, path);
      }
    }
    for (const ConfigField& field : keys.fields())
      if (field.needed) check_given(table, path, field.key, field.rule());
    for (const ConfigTable& inner : keys.tables())
      if (inner.needed) check_given(table, path, inner.key, inner.rule);
    for (const auto& [field, value] : checked) assign_value(*field, *value);
  }

 private:
  // Where a value stands; of a table of texts, the first entry that is none.
  std::string place_of(const ConfigField& field, const json& value, const std::string& at) const {
    ConfigField::Texts none;
    const ConfigField text{.target = &none};
    if (std::holds_alternative<std::map<std::string, ConfigField::Texts>*>(field.target) && value.is_object())
      for (const auto& [name, one] : value.items())
        if (!has_type(text, one)) return file_.place(joined(at, name));
    return file_.place(at);
  }

  [[noreturn]] void refuse(const ConfigTable& table, const json& value, const std::string& at) const {
    fail<ConfigError>("{}: {} is {} ({})", file_.place(at), section_of(at), shown_value(value), table.rule);
  }

  void read_inner(const ConfigTable& table, const json& value, const std::string& at) const {
    if (table.list ? !value.is_array() || (table.needed && value.empty()) : !value.is_object())
      refuse(table, value, at);
    for (std::size_t i = 0; i < (table.list ? value.size() : 1); ++i) {
      KeyList keys;
      keys.section(section_of(at));
      table.describe(keys, i);
      const std::string one = table.list ? fmt::format("{}.{}", at, i) : at;
      const json& entry = table.list ? value[i] : value;
      if (entry.is_object())
        read(keys, entry, one);
      else
        read_short(table, keys, entry, one);
    }
  }

  // Reads an entry of a list that is a value in place of a table.
  void read_short(const ConfigTable& table, const KeyList& keys, const json& value,
                  const std::string& at) const {
    for (const ConfigField& field : keys.fields()) {
      if (!table.short_form || !has_type(field, value)) continue;
      check_value(field, value, file_.place(at));
      return assign_value(field, value);
    }
    refuse(table, value, at);
  }

  void check_given(const json& table, const std::string& path, const std::string& key,
                   const std::string& rule) const {
    if (!table.contains(key))
      fail<ConfigError>("{}: the key {} is missing ({})", file_.place(path), joined(section_of(path), key),
                        rule);
  }

  // errors: ConfigError for a key that is not described, and that no other reader uses.
  void check_known(const KeyList& keys, const std::string& key, const std::string& path) const {
    std::vector<std::string> all;
    for (const ConfigField& field : keys.fields()) all.push_back(field.key);
    for (const ConfigTable& table : keys.tables()) all.push_back(table.key);
    for (const auto& [section, name] : keys.ignored()) {
      if (name == key) return;
      all.push_back(name);
    }
    fail<ConfigError>("{}: unknown key {}{} (nearest: {}; all: {})", file_.place(joined(path, key)),
                      quote_text(key), path.empty() ? "" : " in [" + section_of(path) + "]",
                      nearest_match(key, all), fmt::join(all, ", "));
  }

  const ConfigSource& file_;
};

}  // namespace

void read_table(const KeyList& keys, const ConfigSource& source) {
  TableReader(source).read(keys, source.value, "");
}

}  // namespace eddy::training
