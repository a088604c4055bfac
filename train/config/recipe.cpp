// Reads the recipes, and finds those that fit.
#include "train/config/recipe.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "models/eddy/config.h"
#include "tensor/base/format.h"
#include "train/config/config.h"

namespace eddy::training {
namespace {

constexpr std::string_view kRecipes =
#include "embedded/train/config/recipes.toml"
    ;

struct RecipeEntry {
  ConfigField::Texts models;
  std::int64_t bytes_from = 0, bytes_below = 0;
  double minutes_from = 0, minutes_below = 0;
  bool timed = false;
};

void describe(KeyList& keys, RecipeEntry& entry) {
  keys.add("models", entry.models, "Models; none: all");
  keys.add("bytes_from", entry.bytes_from, "Least bytes of the text", {0});
  keys.add("bytes_below", entry.bytes_below, "The text has fewer bytes; 0: no limit", {0});
  keys.add("minutes_from", entry.minutes_from, "Least minutes", {.low = 0});
  keys.add("minutes_below", entry.minutes_below, "The run has fewer minutes; 0: no limit", {.low = 0});
  keys.add("timed", entry.timed, "Whether minutes end the run");
  keys.ignore({"model", "data", "train"});
}

struct RecipeFile {
  double usual_minutes = 0;
  std::vector<RecipeEntry> entries;
};

void describe(KeyList& keys, RecipeFile& file) {
  keys.add("usual_minutes", file.usual_minutes, "Minutes of a run without minutes and steps",
           {.low = 0, .low_open = true})
      .required();
  keys.add_list("recipe", file.entries, "a list of tables, each with keys of a configuration");
}

struct Recipes {
  ConfigSource source = config_from_toml(kRecipes, "recipes.toml");
  RecipeFile file = read_as<RecipeFile>(source);
};

const Recipes& recipes() {
  static const Recipes once;
  return once;
}

bool fits(const RecipeEntry& entry, const RecipeCase& wanted) {
  const bool is_of_model = entry.models.empty() || std::find(entry.models.begin(), entry.models.end(),
                                                             wanted.model) != entry.models.end();
  return is_of_model && wanted.bytes >= entry.bytes_from &&
         (entry.bytes_below == 0 || wanted.bytes < entry.bytes_below) &&
         (!entry.timed || wanted.minutes > 0) && wanted.minutes >= entry.minutes_from &&
         (entry.minutes_below == 0 || wanted.minutes < entry.minutes_below);
}

// The keys of the entries that fit; a model that they name does not change which do.
ConfigSource keys_for(const RecipeCase& wanted) {
  const auto& [source, file] = recipes();
  ConfigSource keys{source.name, nlohmann::json::object(), {}};
  for (std::size_t i = 0; i < file.entries.size(); ++i) {
    if (!fits(file.entries[i], wanted)) continue;
    for (const char* const section : {"model", "data", "train"}) {
      const ConfigSource part = source.part(fmt::format("recipe.{}.{}", i, section));
      for (const auto& [key, value] : part.value.items()) keys.value[section][key] = value;
    }
  }
  return keys;
}

}  // namespace

double usual_minutes() {
  return recipes().file.usual_minutes;
}

ConfigSource recipe_for(const RecipeCase& wanted) {
  RecipeCase complete = wanted;
  if (complete.model.empty())
    complete.model = keys_for(wanted).value.value("/model/model"_json_pointer, ModelConfig{}.model);
  ConfigSource keys = keys_for(complete);
  if (!wanted.model.empty() && keys.value.contains("model")) keys.value["model"].erase("model");
  return keys;
}

}  // namespace eddy::training
