// Which keys were given, and what follows for the others.
#include "train/config/new_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "train/config/config_file.h"
#include "train/config/recipe.h"
#include "train/config/task_entry.h"
#include "train/fetch/named_data.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

constexpr const char *kFamily = "model.family", *kModel = "model.model";
constexpr const char *kParams = "model.params", *kDim = "model.dim";
constexpr const char *kTask = "data.name", *kPath = "data.path", *kPositions = "model.positions";
constexpr const char *kSteps = "train.steps", *kMinutes = "train.minutes";
constexpr std::string_view kModelSection = "model.";

// The data set that data.path names; null for any other path.
const DataSet* data_set_of(const DataConfig& data) {
  return data.path.size() == 1 ? data_set_named(data.path.front()) : nullptr;
}

// The task of a configuration that names none: its default or, where that does not read the data set, the first that
// does.
std::string usual_task(const DataSet* set, const DataConfig& data) {
  const std::vector<std::string> tasks =
      set == nullptr ? std::vector<std::string>() : tasks_of_data_set(set->name);
  return tasks.empty() || std::count(tasks.begin(), tasks.end(), data.name) > 0 ? data.name : tasks.front();
}

// The model of that name or, as in the list of models, of that family/model; null if there is none.
const ModelEntry* model_named(const std::string& name) {
  for (const ModelEntry& entry : model_registry())
    if (name == entry.model || name == fmt::format("{}/{}", entry.family, entry.model)) return &entry;
  return nullptr;
}

// The model keys among full keys, without their section.
GivenKeys model_keys(const std::set<std::string>& full_keys) {
  GivenKeys keys;
  for (const std::string& key : full_keys)
    if (key.starts_with(kModelSection)) keys.insert(key.substr(kModelSection.size()));
  return keys;
}

// "text, cifar10": the tasks that read a key of [data].
std::string tasks_that_read(const ConfigField& field) {
  std::istringstream words(field.readers);
  std::string tasks;
  for (std::string word; words >> word;) tasks += (tasks.empty() ? "" : ", ") + word;
  return tasks;
}

}  // namespace

void NewConfig::merge_names(bool gave_family, bool gave_model) {
  // A family alone changes no model that was named before: validate says that they contradict each other.
  if (gave_family && !gave_model && given_.contains(kModel)) return;
  imply_names(config_.model, gave_family, gave_model);
}

void NewConfig::merge_width(bool gave_params, bool gave_dim) {
  if (gave_params && gave_dim && config_.model.params > 0)
    fail<ConfigError>("config: {} = {} finds {}, and {} = {} is given too (leave one out)", kParams,
                      config_.model.params, kDim, kDim, config_.model.dim);
  if (gave_dim) config_.model.params = 0;
}

void NewConfig::merge_preset(const std::string& name, const char* program) {
  if (const ModelEntry* entry = model_named(name)) {
    config_.model.family = entry->family;
    config_.model.model = preset_ = entry->model;
    given_.insert({kFamily, kModel});
    return;
  }
  ModelConfig model = paper_config(name, program, "preset", model_list());
  model.vocab = model.n_out = 0;
  merge_model(std::move(model));
}

void NewConfig::merge_model(ModelConfig model) {
  is_free_ = false;
  config_.model = std::move(model);
  std::erase_if(asked_, [](const std::string& key) { return key.starts_with(kModelSection); });
  const ConfigKeys keys = keys_of(config_.model);
  for (const ConfigField& field : keys.fields()) given_.insert(field.full_key());
}

void NewConfig::merge_run(const RunConfig& run) {
  is_free_ = false;
  config_.model = run.model;
  model_of_run_ = fmt::format("{}/{}", run.model.family, run.model.model);
  config_.data = run.data;
  config_.train.sequence = run.train.sequence;
  config_.train.batch = run.train.batch;
  config_.train.carry_state = run.train.carry_state;
  if (task_reads(run.data, "tokenizer") && run.data.tokenizer == kCharTokenizer) {
    if (config_.model.n_out == config_.model.vocab) config_.model.n_out = 0;
    config_.model.vocab = 0;
  }
  const ConfigKeys keys = keys_of(config_);
  for (const ConfigField& field : keys.fields())
    if (field.section != "train") given_.insert(field.full_key());
}

void NewConfig::merge_file(const std::string& path) {
  is_free_ = false;
  const ConfigSource source = read_run_config(path);
  if (merge_source(source) == 0) empty_file_ = source.name;
}

std::size_t NewConfig::merge_source(const ConfigSource& source) {
  keys_of(config_).read(source);
  std::set<std::string> keys;
  for (const auto& [section, table] : source.value.items())
    for (const auto& [key, value] : table.items()) keys.insert(section + "." + key);
  merge_names(keys.contains(kFamily), keys.contains(kModel));
  merge_width(keys.contains(kParams), keys.contains(kDim));
  given_.insert(keys.begin(), keys.end());
  asked_.insert(keys.begin(), keys.end());
  return keys.size();
}

void NewConfig::merge_flags(const std::map<std::string, std::string>& texts) {
  keys_of(config_).read_texts(texts);
  merge_names(texts.contains(kFamily), texts.contains(kModel));
  merge_width(texts.contains(kParams), texts.contains(kDim));
  for (const auto& [key, text] : texts) {
    given_.insert(key);
    asked_.insert(key);
  }
}

std::string NewConfig::choose_recipe(const std::function<std::int64_t(const DataConfig&)>& bytes_of) {
  const DataSet* const set = data_set_of(config_.data);
  DataConfig data = config_.data;
  if (!given_.contains(kTask)) data.name = usual_task(set, data);
  if (!is_free_ || !task_reads(data, "order")) return "";
  TrainConfig& train = config_.train;
  const bool gave_steps = given_.contains(kSteps), gave_end = gave_steps || given_.contains(kMinutes);
  const double minutes = gave_end ? train.minutes : usual_minutes();
  const bool gave_model = given_.contains(kModel) || given_.contains(kFamily);
  const std::int64_t bytes = bytes_of(config_.data);
  const ConfigSource recipe = recipe_for({gave_model ? config_.model.model : "", bytes, minutes});

  std::set<std::string> others = given_;  // keys that something else sets
  if (set != nullptr)
    for (const auto& [key, text] : set->keys) others.insert(key);
  if (given_.contains(kParams)) others.insert(kDim);
  if (config_.model.rotary) others.insert(kPositions);  // they say the order in place of a table
  ConfigSource chosen{recipe.name, nlohmann::json::object(), {}};
  for (const auto& [section, table] : recipe.value.items())
    for (const auto& [key, value] : table.items())
      if (!others.contains(section + "." + key)) chosen.value[section][key] = value;
  nlohmann::json& values = chosen.value;
  if (!gave_end) values["train"]["minutes"] = minutes;
  // A part of the steps stays that part of those that were given, and rows that were given fit.
  if (const auto warmup = "/train/warmup"_json_pointer; gave_steps && values.contains(warmup))
    values[warmup] =
        static_cast<std::int64_t>(recipe.value.at(warmup).get<double>() * static_cast<double>(train.steps) /
                                  recipe.value.at("/train/steps"_json_pointer).get<double>());
  if (const auto context = "/model/context"_json_pointer; values.contains(context))
    values[context] =
        std::max({values[context].get<std::int64_t>(), config_.train.sequence, config_.model.segment});
  keys_of(config_).read(chosen);
  if (!gave_model) imply_names(config_.model, false, true);

  std::string keys;
  for (const auto& [section, table] : values.items())
    for (const auto& [key, value] : table.items()) {
      given_.insert(section + "." + key);
      keys += fmt::format("{}{}.{} {}", keys.empty() ? "" : ", ", section, key,
                          value.is_string()         ? value.get<std::string>()
                          : value.is_number_float() ? human_number(value.get<double>())
                                                    : value.dump());
    }
  if (keys.empty()) return "";
  const std::string end = minutes > 0 ? fmt::format("{} {}", human_number(minutes), plural(minutes, "minute"))
                                      : "an end by steps";
  return fmt::format("chosen for a text of {}, {} and {}: {} (what you give stays as it is)",
                     bytes > 0 ? decimal_bytes(bytes) : "unknown size", end, config_.model.model, keys);
}

bool NewConfig::merge_data_set(RunConfig& config) const {
  const DataSet* const set = data_set_of(config.data);
  if (set == nullptr) return false;
  std::map<std::string, std::string> suits;
  for (const auto& [key, text] : set->keys)
    if (!given_.contains(key)) suits.emplace(key, text);
  keys_of(config).read_texts(suits);
  if (!given_.contains(kTask)) config.data.name = usual_task(set, config.data);
  const std::vector<std::string> tasks = tasks_of_data_set(set->name);
  if (std::count(tasks.begin(), tasks.end(), config.data.name) == 0)
    fail<ConfigError>(
        "config: data.path is {}, which the task {} reads, and data.name is {} (leave data.name out)",
        set->name, fmt::join(tasks, " or "), config.data.name);
  return set->stories;
}

RunConfig NewConfig::completed() const {
  RunConfig config = config_;
  ModelConfig& model = config.model;
  if (!preset_.empty() && model.model != preset_)
    fail<ConfigError>("config: the preset is the model {}, and model.model is {} (leave one out)", preset_,
                      model.model);
  if (const std::string named = fmt::format("{}/{}", model.family, model.model);
      !model_of_run_.empty() && named != model_of_run_)
    fail<ConfigError>(
        "train: the model is {}, and --init-from takes that of the run, {} (leave the model out)", named,
        model_of_run_);
  if (config.train.sequence > 0 && !given_.contains("model.segment")) model.segment = config.train.sequence;
  const bool stories = merge_data_set(config);
  choose_sizes(model, model_keys(given_));
  validate(config);
  const bool may_carry =
      task_reads(config.data, "order") && !value_is(config.train.carry_state, CarryState::never);
  if (may_carry && !given_.contains("data.order") && carries_state(model))
    config.data.order = value_name(stories ? DataOrder::documents : DataOrder::stream);
  return config;
}

std::vector<std::string> NewConfig::unread() const {
  RunConfig mine = config_, defaults;
  const ConfigKeys keys = keys_of(mine);
  const auto differing = differences(keys, keys_of(defaults));
  std::map<std::string, std::vector<std::string>> by_text;  // who does not read, and who does: the keys
  std::vector<std::string> order;
  for (const ConfigField& field : keys.fields()) {
    const bool of_model = field.section == "model";
    if (reads_key(mine, field) || !asked_.contains(field.full_key()) || !differing.contains(field.full_key()))
      continue;
    if (field.full_key() == kPath) continue;  // the task says whether it reads it (check_data_is_read)
    const std::string readers = of_model ? models_that_read(field) : tasks_that_read(field);
    const bool several = readers.find_first_of(", ") != std::string::npos;
    const std::string text = fmt::format("{} does not read {{}}; {} {}",
                                         of_model ? mine.model.model : "the task " + mine.data.name, readers,
                                         several ? "do" : "does");
    if (by_text[text].empty()) order.push_back(text);
    by_text[text].push_back(field.full_key());
  }
  std::vector<std::string> lines;
  if (!empty_file_.empty())
    lines.push_back(
        fmt::format("{} sets no key: what no flag gives is the default, the model {} and the task {} too",
                    empty_file_, config_.model.model, config_.data.name));
  for (const std::string& text : order)
    lines.push_back(fmt::format(fmt::runtime(text), fmt::format("{}", fmt::join(by_text[text], ", "))));
  return lines;
}

std::string config_file_of(const RunConfig& config) {
  RunConfig wanted = config, defaults;
  const ConfigKeys keys = keys_of(wanted);
  std::set<std::string> written;
  const auto write_difference = [&](RunConfig& other) {
    const std::size_t before = written.size();
    for (const auto& [key, fields] : differences(keys, keys_of(other))) written.insert(key);
    return written.size() > before;
  };
  const auto write_all = [&] {
    for (const ConfigField& field : keys.fields()) written.insert(field.full_key());
  };
  write_difference(defaults);
  for (bool changed = true; changed;) {  // what completing would choose in another way is written too
    ConfigSource source{"the configuration", nlohmann::json::object(), {}};
    for (const ConfigField& field : keys.fields())
      if (written.contains(field.full_key())) source.value[field.section][field.key] = value_of(field);
    NewConfig read;
    changed = false;
    try {
      read.merge_source(source);
      RunConfig completed = read.completed();
      changed = write_difference(completed);
    } catch (const ConfigError&) {
      if (written.size() == keys.fields().size()) throw;
      write_all();
      changed = true;
    }
  }
  std::string text;
  for (const std::string& section : keys.sections()) {
    std::string lines;
    for (const ConfigField& field : keys.fields())
      if (field.section == section && written.contains(field.full_key()))
        lines += fmt::format("{} = {}\n", field.key, value_of(field).dump());  // JSON's values are TOML's
    if (!lines.empty()) text += fmt::format("{}[{}]\n{}", text.empty() ? "" : "\n", section, lines);
  }
  return text;
}

ModelConfig preset_model(const std::string& name, const char* program, std::vector<std::string> others) {
  const ModelEntry* const entry = model_named(name);
  if (entry == nullptr) {
    for (std::string& model : model_list()) others.push_back(std::move(model));
    return paper_config(name, program, "preset", std::move(others));
  }
  ModelConfig config;
  config.family = entry->family;
  config.model = entry->model;
  choose_sizes(config, {});
  return config;
}

}  // namespace eddy::training
