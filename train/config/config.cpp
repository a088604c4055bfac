// Reading values into described keys, with all checks, and writing them as JSON.
#include "train/config/config.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <variant>

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
  // A list of one text is that text, and one of none the empty one.
  if (const auto* const* texts = std::get_if<ConfigField::Texts*>(&field.target);
      texts && (*texts)->size() < 2)
    return (*texts)->empty() ? "" : (*texts)->front();
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

}  // namespace eddy::training
