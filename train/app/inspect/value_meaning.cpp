// Reads values.toml of each family, and finds the lines.
#include "train/app/inspect/value_meaning.h"

#include <fnmatch.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "models/eddy/families.h"
#include "tensor/base/format.h"
#include "train/config/config_file.h"

namespace eddy::app {
using namespace training;
namespace {

#define EDDY_NAME_OF(family) #family,
constexpr const char* kFamilyNames[] = {EDDY_FAMILIES(EDDY_NAME_OF)};
constexpr std::string_view kValues[] = {
#include "embedded/models/values.toml"
};
constexpr std::string_view kLiterals[] = {
#include "embedded/models/literal.cpp"
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
  keys.add("rows", meaning.rows, "Of a state: what its rows stand for", value_names<StateRows>());
  keys.add("covers", meaning.covers, "Of a gate: what it stands for", value_names<GateCover>());
  keys.add("enters", meaning.enters, "Of a gate: the attention that has the share of the state");
  keys.add("keys", meaning.keys, "Of an attention: what its keys are");
  keys.add("queries", meaning.queries, "Of an attention: what its queries are");
  keys.add("moves", meaning.moves, "Of an attention: the state that it moves");
}

struct ValuesFile {
  std::vector<GivenMeaning> values;
};

void describe(KeyList& keys, ValuesFile& file) {
  keys.add_list("value", file.values, "a list of tables, each with a path, words and a line");
}

// The first line of a family's literal form, from 1, that has the text.
std::int64_t line_with(const FamilyMeanings& family, const std::string& place, const std::string& text) {
  const std::size_t at = family.literal.find(text);
  if (text.empty() || at == std::string_view::npos)
    fail<ConfigError>("{}: no line of {} has {:?} (take the text of its formula)", place, family.literal_name,
                      text);
  return 1 +
         std::count(family.literal.begin(), family.literal.begin() + static_cast<std::ptrdiff_t>(at), '\n');
}

FamilyMeanings read_family(std::size_t index) {
  const std::string folder = fmt::format("models/{}/", kFamilyNames[index]);
  FamilyMeanings family{kFamilyNames[index], folder + "literal.cpp", kLiterals[index], {}};
  const ConfigSource source = config_from_toml(kValues[index], folder + "values.toml");
  auto file = read_as<ValuesFile>(source);
  for (std::size_t i = 0; i < file.values.size(); ++i) {
    auto& [meaning, line] = file.values[i];
    meaning.line = line_with(family, source.place(fmt::format("value.{}.line", i)), line);
    family.values.push_back(std::move(meaning));
  }
  return family;
}

}  // namespace

const std::vector<FamilyMeanings>& family_meanings() {
  static const std::vector<FamilyMeanings> all = [] {
    std::vector<FamilyMeanings> read;
    for (std::size_t i = 0; i < std::size(kFamilyNames); ++i) read.push_back(read_family(i));
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
