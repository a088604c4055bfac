// `eddy keys` and `eddy tasks`: the configuration keys that a model or a task reads, from their descriptions in
// models/, train/tasks/ and train/config/run_config.cpp.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "models/eddy/config.h"
#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/app/views/table.h"
#include "train/config/run_config.h"
#include "train/fetch/named_data.h"
#include "train/tasks/task.h"
#include "train/words/program_name.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

// "every model", "llama, llama_window", "staircase but lstm": who reads a key.
std::string readers_of(const ConfigField& field) {
  const char* const everyone = field.section == "model"  ? "every model"
                               : field.section == "data" ? "every task"
                                                         : "every run";
  std::string included, excluded;
  std::istringstream words(field.readers);
  for (std::string word; words >> word;) {
    std::string& list = word.starts_with("-") ? excluded : included;
    list += (list.empty() ? "" : ", ") + word.substr(word.starts_with("-") ? 1 : 0);
  }
  if (included.empty()) included = everyone;
  return excluded.empty() ? included : included + " but " + excluded;
}

std::vector<std::string> row_of(const ConfigField& field) {
  const std::string text = text_of(field);
  return {field.full_key(), text.empty() ? "\"\"" : text, field.rule() + "; " + readers_of(field)};
}

// Prints a table, and below each of its rows the line that belongs to it.
void print_with_lines(const Table& table, const std::vector<std::string>& below) {
  const std::vector<std::string> lines = to_lines(table);
  const std::size_t heads = lines.size() - table.rows.size();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    print_line("{}", lines[i]);
    if (i >= heads) print_line("    {}", below.at(i - heads));
  }
}

// The keys of this name, with their section or without: "train.batch", "batch".
std::vector<ConfigField> keys_named(const ConfigKeys& keys, const std::string& wanted) {
  std::vector<ConfigField> found;
  for (const ConfigField& field : keys.fields())
    if (field.full_key() == wanted || field.key == wanted) found.push_back(field);
  return found;
}

// The model that the user names by `model`, or by `family/model`.
// errors: ConfigError with the nearest name of a model or a key.
ModelName named_model(const ConfigKeys& keys, const std::string& wanted) {
  std::vector<std::string> known, all_keys;
  for (const ModelName& name : model_registry()) {
    const std::string full = std::string(name.family) + "/" + name.model;
    if (wanted == name.model || wanted == full) return name;
    known.emplace_back(wanted.find('/') == std::string::npos ? name.model : full);
  }
  for (const ConfigField& field : keys.fields()) all_keys.push_back(field.full_key());
  std::string hint = suggest_value(wanted, known);
  if (const std::string key = suggest_name(wanted, all_keys); hint.empty() && !key.empty())
    hint = "nearest key: " + key + "; ";
  fail<ConfigError>("keys: there is no model {:?}, and no key of that name ({}{} models lists them)", wanted,
                    hint, program_name());
}

int list_keys(const std::string& wanted) {
  RunConfig defaults;
  const ConfigKeys keys = keys_of(defaults);
  const bool all = wanted.empty();
  const std::vector<ConfigField> named = keys_named(keys, wanted);
  const ModelName name = all || !named.empty() ? ModelName{"", ""} : named_model(keys, wanted);
  int hidden = 0;
  Table table{{"key", "default", "allowed; read by"}};
  std::vector<std::string> help;
  for (const ConfigField& field : named.empty() ? keys.fields() : named) {
    if (!all && named.empty() && (field.section != "model" || !field.is_read_by(name.family, name.model)))
      continue;
    if (field.use == KeyUse::paper_quirk && named.empty()) {
      ++hidden;
      continue;
    }
    table.rows.push_back(row_of(field));
    help.push_back(field.help + '.');
  }
  print_with_lines(table, help);
  print_line(
      "\nA key is TABLE.KEY in a configuration file, and a flag --TABLE.KEY VALUE, where a whole number may end in");
  print_line("k, m, g or b: 2m is 2000000.");
  if (!all && named.empty())
    print_line("`{} keys` also lists the keys of [data] and [train].", program_name());
  if (hidden > 0)
    print_line("Keys for details of published code are left out ({}); `{} train --help-all` lists them.",
               hidden, program_name());
  return 0;
}

int list_tasks() {
  RunConfig defaults;
  const ConfigKeys keys = keys_of(defaults);
  Table tasks;
  std::vector<std::string> keys_read;
  for (const TaskEntry& task : task_registry()) {
    std::string names;
    for (const ConfigField& field : keys.fields())
      if (field.section == "data" && field.key != "name" && field.use != KeyUse::paper_quirk &&
          field.is_read_by("", task.name))
        names += (names.empty() ? "" : ", ") + field.key;
    tasks.rows.push_back({task.name, fmt::format("predicts {}", task.summary)});
    keys_read.push_back("keys: " + (names.empty() ? "none of its own" : names));
  }
  print_with_lines(tasks, keys_read);
  print_line("\nData sets, by name: --data NAME. Each is fetched once, checked, and kept in {}:",
             DataPlaces::standard().cache);
  Table sets;
  for (const DataSet& set : data_sets()) sets.rows.push_back({set.name, set.summary});
  print(to_text(sets, 2));
  print_line("Another folder is named by EDDY_CACHE_DIR.");
  print_line("\nTrain on one with --data.name TASK; its keys are --data.KEY. `{} keys` explains them.",
             program_name());
  return 0;
}

Described describe_keys(CLI::App& command) {
  const auto wanted = std::make_shared<std::string>();
  command.add_option("MODEL", *wanted,
                     "A model, or family/model, or a key; without one, all keys are listed");
  return {[wanted] { return list_keys(*wanted); }};
}

Described describe_tasks(CLI::App&) {
  return {list_tasks};
}

}  // namespace

Command commands::keys() {
  return {"keys", "List the configuration keys that a model reads, with type and default", Computes::nothing,
          Results::printed, describe_keys};
}

Command commands::tasks() {
  return {"tasks", "List what a model can be trained on", Computes::nothing, Results::printed,
          describe_tasks};
}

}  // namespace eddy::app
