// The configuration of any model, by the descriptions of its parts.
#include "models/eddy/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <variant>

#include "models/config_keys.h"
#include "models/eddy/fit_params.h"
#include "models/eddy/registry.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

void check_name(const ModelConfig& c) {
  for (const ModelName& name : model_registry())
    if (c.model == name.model && c.family == name.family) return;
  std::vector<std::string> of_family;
  for (const ModelName& name : model_registry())
    if (c.family == name.family) of_family.emplace_back(name.model);
  if (of_family.empty())
    fail<ConfigError>("config: model.family is \"{}\" (one of {})", c.family, fmt::join(family_list(), ", "));
  std::string theirs;
  for (const ModelName& name : model_registry())
    if (c.model == name.model)
      theirs = fmt::format("; {} is of family {}: leave out model.family, which follows from the model",
                           name.model, name.family);
  fail<ConfigError>("config: model.model is \"{}\", which family {} does not have (one of {}{})", c.model,
                    c.family, fmt::join(of_family, ", "), theirs);
}

// Adds a model that says which common keys it reads to the readers of these keys.
// errors: ConfigError for a key that there is none of.
void add_readers(KeyList& keys, const ModelEntry& entry) {
  std::istringstream words(entry.traits.common);
  for (std::string word; words >> word;) {
    const bool excludes = word.starts_with("-");
    ConfigField* const field = keys.find("model", excludes ? word.substr(1) : word);
    if (field == nullptr)
      fail<ConfigError>("there is no key model.{} (ModelTraits::common has keys that are described)",
                        excludes ? word.substr(1) : word);
    if (field->is_read_by(entry.family, entry.model) == excludes)
      field->readers += fmt::format(" {}{}/{}", excludes ? "-" : "", entry.family, entry.model);
  }
}

void copy_value(const ConfigField& to, const ConfigField& from) {
  std::visit([&]<class Value>(Value* value) { *value = *std::get<Value*>(from.target); }, to.target);
}

const FamilyEntry& family_entry(const ModelConfig& config) {
  const std::span<const FamilyEntry> all = family_registry();
  return *std::find_if(all.begin(), all.end(),
                       [&](const FamilyEntry& family) { return config.family == family.name; });
}

// The most heads up to so many that divide a width into even parts, since rotary positions turn pairs; so many where
// they divide it, and 1 where none do.
std::int64_t heads_of_width(std::int64_t dim, std::int64_t most) {
  if (dim < 1 || dim % most == 0) return most;
  for (std::int64_t heads = most - 1; heads > 1; --heads)
    if (dim % (2 * heads) == 0) return heads;
  return 1;
}

}  // namespace

std::vector<std::string> family_list() {
  std::vector<std::string> families;
  for (const FamilyEntry& family : family_registry()) families.emplace_back(family.name);
  return families;
}

std::vector<std::string> model_list() {
  std::vector<std::string> models;
  for (const ModelName& name : model_registry()) models.emplace_back(name.model);
  return models;
}

void describe(KeyList& keys, ModelConfig& c) {
  keys.section("model");
  keys.usually_fixed(true);
  keys.add("family", c.family, "Model family", family_list()).common();
  keys.add("model", c.model, "Model of the family", model_list()).common();
  describe(keys, static_cast<CommonKeys&>(c));
  for (const FamilyEntry& family : family_registry()) {
    keys.usually_read_by(family.name);
    family.describe(keys, c);
  }
  keys.usually_read_by("");
  keys.usually_fixed(false);
  for (const ModelEntry& entry : model_registry()) add_readers(keys, entry);
}

bool reads_key(const ModelConfig& config, std::string_view key) {
  ModelConfig copy = config;  // described keys point into a struct that is not const
  KeyList keys;
  describe(keys, copy);
  return std::any_of(keys.fields().begin(), keys.fields().end(), [&](const ConfigField& field) {
    return field.key == key && field.is_read_by(config.family, config.model);
  });
}

std::string readout_of(const ModelConfig& config) {
  ModelConfig read = config;
  reset_unread(read);
  return read.readout;
}

void imply_names(ModelConfig& config, bool gave_family, bool gave_model) {
  if (gave_family == gave_model) return;
  const auto is_known = [&](const ModelName& name) {
    return gave_model ? config.model == name.model : config.family == name.family;
  };
  const std::span<const ModelEntry> all = model_registry();
  const auto found = std::find_if(all.begin(), all.end(), is_known);
  if (found == all.end()) return;  // validate says what there is
  if (gave_model)
    config.family = found->family;
  else
    config.model = main_model(config.family).model;
}

void choose_sizes(ModelConfig& config, const GivenKeys& given) {
  check_name(config);
  ModelConfig chosen = config;
  if (given.contains("dim") && !given.contains("heads") && !given.contains("head_dim"))
    chosen.heads = heads_of_width(chosen.dim, chosen.heads);
  family_entry(config).choose_sizes(chosen, given);
  // Keys that the model does not read stay as they are.
  KeyList keys, from;
  describe(keys, config);
  describe(from, chosen);
  for (std::size_t i = 0; i < keys.fields().size(); ++i)
    if (keys.fields()[i].is_read_by(config.family, config.model))
      copy_value(keys.fields()[i], from.fields()[i]);
}

std::string models_that_read(const ConfigField& field) {
  constexpr std::size_t kMostNamed = 6;
  std::vector<std::string> readers, others;
  for (const ModelName& name : model_registry())
    (field.is_read_by(name.family, name.model) ? readers : others).emplace_back(name.model);
  if (readers.size() <= kMostNamed || others.size() > kMostNamed)
    return fmt::format("{}", fmt::join(readers, ", "));
  return fmt::format("all models but {}", fmt::join(others, ", "));
}

void validate(const ModelConfig& c) {
  check_name(c);
  if (c.vocab == 0)
    fail<ConfigError>("config: model.vocab is 0 (set it, or put in the number of the tokenizer's tokens)");
  ModelConfig copy = c;
  KeyList keys;
  describe(keys, copy);
  for (const ConfigField& field : keys.fields()) field.check();
  if (const ConfigField& classes = *keys.find("model", "n_out");
      c.n_out > c.vocab && !classes.is_read_by(c.family, c.model))
    fail<ConfigError>(
        "config: model {} has a class for each of its {} {} and no more, and model.n_out is {} (models that read n_out: {})",
        c.model, c.vocab, c.vocab == 1 ? "token" : "tokens", c.n_out, models_that_read(classes));
  if (copy.params > 0) copy.dim = 16 * copy.heads;  // it is still to be found, among such widths
  family_entry(c).check(copy);
}

void reset_unread(ModelConfig& config) {
  ModelConfig defaults;
  KeyList keys, initial;
  describe(keys, config);
  describe(initial, defaults);
  for (std::size_t i = 0; i < keys.fields().size(); ++i) {
    const ConfigField& field = keys.fields()[i];
    if (field.is_read_by(config.family, config.model)) continue;
    copy_value(field, initial.fields()[i]);
  }
}

void fill(ModelConfig& config) {
  family_entry(config).fill(config);
  fill_common(config);
  for (const FamilyEntry& family : family_registry()) family.fill(config);  // keys that only others read
}

ModelConfig resolved(ModelConfig config) {
  fit_params(config);
  validate(config);
  reset_unread(config);
  fill(config);
  return config;
}

}  // namespace eddy
