// Reads models/*/values.toml, and finds the lines.
#include "train/app/inspect/value_meaning.h"

#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/base/format.h"
#include "train/config/config_file.h"

namespace eddy::app {
using namespace training;
namespace {

struct FamilyFiles {
  const char* literal_name;
  std::string_view values, literal;
};

constexpr FamilyFiles kFamilyFiles[] = {
    {
        "models/recurrent_transformer/literal.cpp",
#include "embedded/models/recurrent_transformer/values.toml"
        ,
#include "embedded/models/recurrent_transformer/literal.cpp"
    },
    {
        "models/block_recurrent/literal.cpp",
#include "embedded/models/block_recurrent/values.toml"
        ,
#include "embedded/models/block_recurrent/literal.cpp"
    },
    {
        "models/blockwise_recurrent/literal.cpp",
#include "embedded/models/blockwise_recurrent/values.toml"
        ,
#include "embedded/models/blockwise_recurrent/literal.cpp"
    },
    {
        "models/staircase/literal.cpp",
#include "embedded/models/staircase/values.toml"
        ,
#include "embedded/models/staircase/literal.cpp"
    },
};

// The first line, from 1, that has the text.
std::int64_t line_with(const FamilyFiles& files, const std::string& path, const std::string& text) {
  const std::size_t at = files.literal.find(text);
  if (text.empty() || at == std::string_view::npos)
    fail<ConfigError>("values of {}: no line of {} has {:?} (take the text of its formula)", path,
                      files.literal_name, text);
  return 1 + std::count(files.literal.begin(), files.literal.begin() + static_cast<std::ptrdiff_t>(at), '\n');
}

FamilyMeanings read_family(const FamilyFiles& files) {
  const nlohmann::json data = config_from_toml(files.values, "values.toml").value;
  FamilyMeanings family{data.at("family"), files.literal_name, files.literal, {}};
  for (const nlohmann::json& entry : data.at("value")) {
    ValueMeaning meaning;
    meaning.path = entry.at("path");
    for (const auto& [key, value] : entry.items()) {
      if (key == "models")
        meaning.models = value.get<std::vector<std::string>>();
      else if (key == "words")
        meaning.words = value;
      else if (key == "line")
        meaning.line = line_with(files, meaning.path, value);
      else if (key == "rows")
        meaning.rows = value;
      else if (key == "covers")
        meaning.covers = value;
      else if (key == "enters")
        meaning.enters = value;
      else if (key == "keys")
        meaning.keys = value;
      else if (key == "queries")
        meaning.queries = value;
      else if (key == "moves")
        meaning.moves = value;
      else if (key != "path")
        fail<ConfigError>("values of {}: unknown key {:?} (see train/app/inspect/value_meaning.h)",
                          meaning.path, key);
    }
    family.values.push_back(std::move(meaning));
  }
  return family;
}

}  // namespace

const std::vector<FamilyMeanings>& family_meanings() {
  static const std::vector<FamilyMeanings> all = [] {
    std::vector<FamilyMeanings> read;
    for (const FamilyFiles& files : kFamilyFiles) read.push_back(read_family(files));
    return read;
  }();
  return all;
}

const FamilyMeanings* meanings_of(const ModelConfig& config) {
  for (const FamilyMeanings& family : family_meanings())
    if (family.family == config.family) return &family;
  return nullptr;
}

const ValueMeaning* meaning_of(const ModelConfig& config, const std::string& path) {
  const FamilyMeanings* const family = meanings_of(config);
  if (family == nullptr) return nullptr;
  for (const ValueMeaning& meaning : family->values)
    if (fnmatch(meaning.path.c_str(), path.c_str(), FNM_NOESCAPE) == 0 &&
        (meaning.models.empty() || std::ranges::count(meaning.models, config.model) > 0))
      return &meaning;
  return nullptr;
}

}  // namespace eddy::app
