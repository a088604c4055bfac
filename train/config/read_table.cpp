// Reads configurations and tables of data: keys, tables within tables, and lists of tables,
// as a KeyList describes them.
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/config/config_file.h"
#include "train/words/suggest.h"

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

// A value that fits its key, and is assigned when all of the file does.
struct Checked {
  ConfigField field;
  const json* value;
};

class TableReader {
 public:
  // With `sections` each section of theirs is a table of the file.
  explicit TableReader(const ConfigSource& file, const KeyList* sections = nullptr)
      : file_(file), sections_(sections) {}

  void read_file(const KeyList& keys) const {
    std::vector<Checked> checked;
    if (sections_ == nullptr) {
      read(keys, file_.value, "", checked);
    } else {
      check_table(file_.value, "");
      for (const auto& [section, table] : file_.value.items()) check_section(section, table);
      const json none = json::object();
      for (const std::string& section : sections_->sections()) {
        const auto table = file_.value.find(section);
        read(keys.part(section), table == file_.value.end() ? none : *table, section, checked);
      }
    }
    assign(checked);
  }

 private:
  static void assign(const std::vector<Checked>& checked) {
    for (const auto& [field, value] : checked) assign_value(field, *value);
  }

  // Reads the table that stands at `path`; "": the whole file.
  void read(const KeyList& keys, const json& table, const std::string& path,
            std::vector<Checked>& checked) const {
    check_table(table, path);
    for (const auto& [key, value] : table.items()) {
      const std::string at = joined(path, key);
      if (const ConfigField* const field = named(keys.fields(), key)) {
        check_value(*field, value, place_of(*field, value, at));
        checked.push_back({*field, &value});
      } else if (const ConfigTable* const inner = named(keys.tables(), key)) {
        read_inner(*inner, value, at, checked);
      } else {
        check_known(keys, key, path);
      }
    }
    for (const ConfigField& field : keys.fields())
      if (field.needed) check_given(table, path, field.key, field.rule());
    for (const ConfigTable& inner : keys.tables())
      if (inner.needed) check_given(table, path, inner.key, inner.rule);
  }

  void check_table(const json& value, const std::string& path) const {
    if (!value.is_object())
      fail<ConfigError>("{}: {} is {} (a table of keys)", file_.place(path),
                        path.empty() ? "the file" : section_of(path), shown_value(value));
  }

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

  void read_inner(const ConfigTable& table, const json& value, const std::string& at,
                  std::vector<Checked>& checked) const {
    if (table.list ? !value.is_array() || (table.needed && value.empty()) : !value.is_object())
      refuse(table, value, at);
    for (std::size_t i = 0; i < (table.list ? value.size() : 1); ++i) {
      KeyList keys;
      keys.section(section_of(at));
      table.describe(keys, i);
      if (!table.list) return read(keys, value, at, checked);
      const std::string one = fmt::format("{}.{}", at, i);
      if (!value[i].is_object()) {
        read_short(table, keys, value[i], one);
        continue;
      }
      std::vector<Checked> of_entry;  // assigned now, since the next entry may move this one
      read(keys, value[i], one, of_entry);
      assign(of_entry);
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
    const std::string unknown =
        fmt::format("{}: unknown key {}{}", file_.place(joined(path, key)), quote_text(key),
                    path.empty() ? "" : " in [" + section_of(path) + "]");
    const std::string nearest = nearest_match(key, all);
    if (sections_ == nullptr)
      fail<ConfigError>("{} (nearest: {}; all: {})", unknown, nearest, fmt::join(all, ", "));
    // The right key in the wrong section is the likeliest mistake; a misspelt key of this section comes next.
    if (const std::string homes = sections_with(key); !homes.empty())
      fail<ConfigError>("{} (it belongs to {})", unknown, homes);
    const std::string meant = meant_key(key, path);
    fail<ConfigError>("{} (nearest: {})", unknown, meant.empty() ? nearest : meant);
  }

  // The sections that have a key of this name: "[model] or [train]"; "" where none has.
  std::string sections_with(const std::string& key) const {
    std::vector<std::string> found;
    for (const ConfigField& field : sections_->fields())
      if (field.key == key) found.push_back("[" + field.section + "]");
    return fmt::format("{}", fmt::join(found, " or "));
  }

  // errors: ConfigError for a table that is no section.
  void check_section(const std::string& section, const json& table) const {
    const std::vector<std::string>& all = sections_->sections();
    if (std::find(all.begin(), all.end(), section) != all.end()) return;
    const std::string place = file_.place(section), name = quote_text(section);
    if (!table.is_object()) {
      if (const std::string homes = sections_with(section); !homes.empty())
        fail<ConfigError>("{}: unknown key {} outside all tables (it belongs to {})", place, name, homes);
      if (const std::string meant = meant_key(section, ""); !meant.empty())
        fail<ConfigError>("{}: unknown key {} outside all tables (nearest: {})", place, name, meant);
    }
    const std::string meant = suggest_name(section, all);
    fail<ConfigError>("{}: unknown section {} ({}there are {})", place, name,
                      meant.empty() ? "" : "nearest: " + meant + "; ", fmt::join(all, ", "));
  }

  // The key of any section that was meant, as an error of this section names it; "" if none is near.
  std::string meant_key(const std::string& key, const std::string& section) const {
    std::vector<std::string> all;
    for (const ConfigField& field : sections_->fields()) all.push_back(field.full_key());
    const std::string meant = suggest_name(key, all, section);
    for (const ConfigField& field : sections_->fields())
      if (field.full_key() == meant)
        return field.section == section ? field.key : field.key + " in [" + field.section + "]";
    return "";
  }

  const ConfigSource& file_;
  const KeyList* const sections_;
};

}  // namespace

void read_table(const KeyList& keys, const ConfigSource& source) {
  TableReader(source).read_file(keys);
}

void ConfigKeys::read(const ConfigSource& source) {
  TableReader(source, this).read_file(*this);
}

}  // namespace eddy::training
