// Reads models/*/values.toml, and finds the lines.
#include "train/app/inspect/value_meaning.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "tensor/base/format.h"
#include "train/config/config_file.h"

namespace eddy::app {
using namespace training;
namespace {

struct FamilyFiles {
  const char *values_name, *literal_name;
  std::string_view values, literal;
};

constexpr FamilyFiles kFamilyFiles[] = {
    {
        "models/recurrent_transformer/values.toml",
        "models/recurrent_transformer/literal.cpp",
#include "embedded/models/recurrent_transformer/values.toml"
        ,
#include "embedded/models/recurrent_transformer/literal.cpp"
    },
    {
        "models/block_recurrent/values.toml",
        "models/block_recurrent/literal.cpp",
#include "embedded/models/block_recurrent/values.toml"
        ,
#include "embedded/models/block_recurrent/literal.cpp"
    },
    {
        "models/blockwise_recurrent/values.toml",
        "models/blockwise_recurrent/literal.cpp",
#include "embedded/models/blockwise_recurrent/values.toml"
        ,
#include "embedded/models/blockwise_recurrent/literal.cpp"
    },
    {
        "models/staircase/values.toml",
        "models/staircase/literal.cpp",
#include "embedded/models/staircase/values.toml"
        ,
#include "embedded/models/staircase/literal.cpp"
    },
};

struct GivenMeaning {
  ValueMeaning meaning;
  std::string line;
};

void describe(KeyList& keys, GivenMeaning& given) {
  ValueMeaning& meaning = given.meaning;
  keys.add("path", meaning.path, "Path of the value, with * for any text").required();
  keys.add("models", meaning.models, "Models that it is said of");
  keys.add("words", meaning.words, "What the value is").required();
  keys.add("line", given.line, "Part of the line of literal.cpp that has the formula").required();
  keys.add("rows", meaning.rows, "Of a state: what its rows stand for", {"tokens", "blocks", "slots"});
  keys.add("covers", meaning.covers, "Of a gate: what it stands for", {"last axis", "calls", "nothing"});
  keys.add("enters", meaning.enters, "Of a gate: the attention that has the share of the state");
  keys.add("keys", meaning.keys, "Of an attention: what its keys are");
  keys.add("queries", meaning.queries, "Of an attention: what its queries are");
  keys.add("moves", meaning.moves, "Of an attention: the state that it moves");
}

struct ValuesFile {
  std::string family;
  std::vector<GivenMeaning> values;
};

void describe(KeyList& keys, ValuesFile& file) {
  keys.add("family", file.family, "Family").required();
  keys.add_list("value", file.values, "a list of tables, each with a path, words and a line").required();
}

// The first line, from 1, that has the text.
std::int64_t line_with(const FamilyFiles& files, const std::string& place, const std::string& text) {
  const std::size_t at = files.literal.find(text);
  if (text.empty() || at == std::string_view::npos)
    fail<ConfigError>("{}: no line of {} has {:?} (take the text of its formula)", place, files.literal_name,
                      text);
  return 1 + std::count(files.literal.begin(), files.literal.begin() + static_cast<std::ptrdiff_t>(at), '\n');
}

FamilyMeanings read_family(const FamilyFiles& files) {
  const ConfigSource source = config_from_toml(files.values, files.values_name);
  auto file = read_as<ValuesFile>(source);
  FamilyMeanings family{file.family, files.literal_name, files.literal, {}};
  for (std::size_t i = 0; i < file.values.size(); ++i) {
    auto& [meaning, line] = file.values[i];
    meaning.line = line_with(files, source.place(fmt::format("value.{}.line", i)), line);
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
