// Reading values into described keys, with all checks, and writing them as JSON.
#include "train/config/config.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/config/config_file.h"
#include "train/words/suggest.h"

namespace eddy::training {

using nlohmann::json;

std::string ConfigSource::place(const std::string& full_key) const {
  for (std::string key = full_key;;) {
    if (const auto found = places.find(key); found != places.end()) return found->second;
    const std::size_t dot = key.rfind('.');
    if (dot == std::string::npos) return name;
    key.resize(dot);
  }
}

ConfigSource ConfigSource::part(const std::string& key) const {
  const json none = json::object();
  const json* found = &value;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t dot = std::min(key.find('.', at), key.size());
    const std::string step = key.substr(at, dot - at);
    at = dot + 1;
    if (found->is_array()) {
      const std::size_t index = std::strtoull(step.c_str(), nullptr, 10);
      found = index < found->size() ? &(*found)[index] : &none;
    } else {
      const auto next = found->find(step);
      found = found->is_object() && next != found->end() ? &*next : &none;
    }
  }
  ConfigSource source{place(key), *found, {}};
  const std::string inside = key + ".";
  for (const auto& [path, where] : places)
    if (path.starts_with(inside)) source.places.emplace(path.substr(inside.size()), where);
  return source;
}

json value_of(const ConfigField& field) {
  return std::visit([](const auto* held) { return json(*held); }, field.target);
}

std::string text_of(const ConfigField& field) {
  const json held = value_of(field);
  return held.is_string() ? held.get<std::string>() : held.dump();
}

const ConfigField* ConfigKeys::find(const std::string& full_key) const {
  const auto found = std::find_if(fields().begin(), fields().end(),
                                  [&](const ConfigField& field) { return field.full_key() == full_key; });
  return found != fields().end() ? &*found : nullptr;
}

// The key that was meant, as an error of this section names it; "" if none is near.
std::string ConfigKeys::meant_key(const std::string& key, const std::string& section) const {
  std::vector<std::string> all;
  for (const ConfigField& field : fields()) all.push_back(field.full_key());
  const ConfigField* const meant = find(suggest_name(key, all, section));
  if (meant == nullptr || meant->section == section) return meant == nullptr ? "" : meant->key;
  return meant->key + " in [" + meant->section + "]";
}

void ConfigKeys::refuse_key(const std::string& place, const std::string& section,
                            const std::string& key) const {
  // The right key in the wrong section is the likeliest mistake; a misspelt key of this section comes next.
  std::vector<std::string> here;
  for (const ConfigField& field : fields()) {
    if (field.key == key)
      fail<ConfigError>("{}: unknown key {} in [{}] (it belongs to [{}])", place, quote_text(key), section,
                        field.section);
    if (field.section == section) here.push_back(field.key);
  }
  if (const std::string meant = meant_key(key, section); !meant.empty())
    fail<ConfigError>("{}: unknown key {} in [{}] (nearest: {})", place, quote_text(key), section, meant);
  for (const auto& [other, name] : ignored())
    if (other == section) here.push_back(name);
  fail<ConfigError>("{}: unknown key {} in [{}] (nearest: {})", place, quote_text(key), section,
                    nearest_match(key, here));
}

void ConfigKeys::read(const ConfigSource& source) {
  if (!source.value.is_object())
    fail<ConfigError>("{}: the config is not a table but {}", source.name, source.value.type_name());
  std::vector<std::pair<const ConfigField*, const json*>> checked;
  for (const auto& [section, table] : source.value.items()) {
    if (std::find(sections().begin(), sections().end(), section) == sections().end()) {
      if (!table.is_object())
        for (const ConfigField& field : fields())
          if (field.key == section)
            fail<ConfigError>("{}: unknown key {} outside all tables (it belongs to [{}])",
                              source.place(section), quote_text(section), field.section);
      if (const std::string meant = table.is_object() ? "" : meant_key(section, ""); !meant.empty())
        fail<ConfigError>("{}: unknown key {} outside all tables (nearest: {})", source.place(section),
                          quote_text(section), meant);
      const std::string meant = suggest_name(section, sections());
      fail<ConfigError>("{}: unknown section {} ({}there are {})", source.place(section), quote_text(section),
                        meant.empty() ? "" : "nearest: " + meant + "; ", fmt::join(sections(), ", "));
    }
    if (!table.is_object())
      fail<ConfigError>("{}: {} is {} (a table of keys)", source.place(section), section, table.type_name());
    for (const auto& [key, value] : table.items()) {
      const std::string full_key = section + "." + key;
      if (const ConfigField* field = find(full_key)) {
        check_value(*field, value, source.place(full_key));
        checked.emplace_back(field, &value);
      } else if (std::find(ignored().begin(), ignored().end(), std::pair(section, key)) == ignored().end()) {
        refuse_key(source.place(full_key), section, key);
      }
    }
  }
  for (const auto& [field, value] : checked) assign_value(*field, *value);
}

void ConfigKeys::read_texts(const std::map<std::string, std::string>& texts) {
  std::vector<std::pair<const ConfigField*, json>> checked;
  for (const auto& [full_key, text] : texts) {
    const std::string place = "--" + full_key;
    const ConfigField* field = find(full_key);
    if (field == nullptr) {
      std::vector<std::string> all;
      for (const ConfigField& other : fields()) all.push_back(other.full_key());
      fail<ConfigError>("{}: unknown key (nearest: --{})", place, nearest_match(full_key, all));
    }
    json value = read_value(*field, text, place);
    check_value(*field, value, place);
    checked.emplace_back(field, std::move(value));
  }
  for (const auto& [field, value] : checked) assign_value(*field, value);
}

json ConfigKeys::to_json() const {
  json all = json::object();
  for (const std::string& section : sections()) all[section] = json::object();
  for (const ConfigField& field : fields()) all[field.section][field.key] = value_of(field);
  return all;
}

std::map<std::string, std::pair<ConfigField, ConfigField>> differences(const KeyList& a, const KeyList& b) {
  std::map<std::string, std::pair<ConfigField, ConfigField>> found;
  for (std::size_t i = 0; i < a.fields().size(); ++i) {
    const ConfigField &left = a.fields()[i], &right = b.fields()[i];
    if (value_of(left) != value_of(right)) found.emplace(left.full_key(), std::pair(left, right));
  }
  return found;
}

std::string nearest_match(std::string_view text, const std::vector<std::string>& candidates) {
  // A key of a hostile file can be a megabyte long. The characters beyond the longest candidate hardly change
  // the choice.
  text = text.substr(0, 64);
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    if (const std::size_t distance = edit_distance(text, candidate); distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace eddy::training
