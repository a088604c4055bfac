// The list of tasks.
#include "train/tasks/task.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string_view>
#include <vector>

#include "tensor/base/format.h"
#include "train/config/config.h"
#include "train/fetch/named_data.h"
#include "train/files/standard_input.h"
#include "train/words/program_name.h"
#include "train/words/suggest.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

std::vector<TaskEntry>& tasks() {
  static std::vector<TaskEntry> all{
      text_task(),   cifar_task(),  copy_task(), selective_copy_task(), recall_task(),
      parity_task(), groups_task(), mqar_task(), algorithm_task(),      random_walk_task(),
  };
  return all;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The paths that fit a pattern, sorted.
std::vector<std::string> matches_of(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return {};
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

// The given paths, taken from a folder; none unless all are there. Standard input is what one of `kept_in` has of it.
// errors: IoError where none of them has it any more.
DataPaths paths_in(const fs::path& folder, const DataPaths& given, const std::vector<std::string>& kept_in) {
  DataPaths found;
  for (const std::string& path : given) {
    const fs::path place = folder / path;
    if (path == kStandardInput) {
      std::string input = path;
      for (const std::string& kept : kept_in)
        if (input == path && is_there(fs::path(kept) / kKeptInput))
          input = (fs::path(kept) / kKeptInput).string();
      if (input == path && !kept_in.empty())
        fail<IoError>(
            "data: the text came from standard input, and {}, which the run kept of it in its folder, is gone (put it back, "
            "or name the text by --data)",
            kKeptInput);
      found.push_back(std::move(input));
    } else if (is_there(place)) {
      found.push_back(place.string());
    } else {
      const std::vector<std::string> matches = matches_of(place.string());
      if (matches.empty()) return {};
      found.insert(found.end(), matches.begin(), matches.end());
    }
  }
  return found;
}

}  // namespace

std::span<const TaskEntry> task_registry() {
  return tasks();
}

std::vector<std::string> tasks_of_data_set(std::string_view set) {
  std::vector<std::string> names;
  for (const TaskEntry& entry : tasks()) {
    std::istringstream words(entry.data_sets);
    for (std::string word; words >> word;)
      if (word == set) names.emplace_back(entry.name);
  }
  return names;
}

void register_task(const TaskEntry& task) {
  check_new_name("register_task", task.name);
  for (const TaskEntry& other : tasks())
    if (std::string_view(other.name) == task.name)
      fail<ConfigError>("register_task: {} is the name of a task already (name it otherwise)", task.name);
  std::istringstream words(task.data_sets);
  for (std::string word; words >> word;)
    if (std::none_of(data_sets().begin(), data_sets().end(),
                     [&](const DataSet& set) { return set.name == word; }))
      fail<ConfigError>(
          "register_task: {}: there is no data set {:?} (TaskEntry::data_sets has names that {} tasks lists)",
          task.name, word, program_name());
  tasks().push_back(task);
  try {
    DataConfig config;
    KeyList keys;
    describe(keys, config);
  } catch (const ConfigError& error) {
    tasks().pop_back();
    fail<ConfigError>("register_task: {}: {}", task.name, error.what());
  }
}

std::unique_ptr<Task> make_task(TaskArguments arguments) {
  const std::string& name = arguments.config.data.name;
  std::vector<std::string> names;
  for (const TaskEntry& entry : tasks()) {
    if (name == entry.name) return entry.make(std::move(arguments));
    names.emplace_back(entry.name);
  }
  fail<ConfigError>("config: data.name is \"{}\" (there is no such task; the nearest is \"{}\")", name,
                    nearest_match(name, names));
}

void check_data_is_read(const Task& task, const RunConfig& config) {
  if (config.data.path.empty() || task.reads_files()) return;
  fail<ConfigError>(
      "config: data.name is {}, a task that generates its examples, and data.path is {} (leave out data.path to train on {}, "
      "or data.name to train on what data.path names)",
      config.data.name, config.data.path.text(), config.data.name);
}

std::vector<DataPaths> data_paths(const TaskArguments& arguments) {
  const DataPaths& given = arguments.config.data.path;
  if (const DataSet* set = given.size() == 1 ? data_set_named(given.front()) : nullptr) {
    std::ostream nowhere(nullptr);  // without a buffer it discards everything
    return {path_of_data_set(*set, DataPlaces::standard(),
                             arguments.messages != nullptr ? *arguments.messages : nowhere)};
  }
  std::vector<DataPaths> places;
  std::vector<std::string> folders{""};
  if (std::any_of(given.begin(), given.end(),
                  [](const std::string& path) { return fs::path(path).is_relative(); }))
    folders.insert(folders.end(), arguments.folders.begin(), arguments.folders.end());
  for (const std::string& folder : folders)
    if (DataPaths found = paths_in(folder, given, arguments.folders); !found.empty())
      places.push_back(std::move(found));
  if (!places.empty()) return places;
  std::vector<std::string> names;
  for (const DataSet& set : data_sets()) names.push_back(set.name);
  if (const std::string likely = given.size() != 1 || fs::path(given.front()).has_parent_path()
                                     ? ""
                                     : suggest_name(given.front(), names);
      !likely.empty())
    fail<IoError>(
        "data: no such file or folder: '{}' (the data set of a like name is {}; {} tasks lists them)",
        given.front(), likely, program_name());
  return {given};
}

std::string fresh_stream(const std::string& task, Split split) {
  if (split != Split::valid && split != Split::test)
    fail<ValueError>("{}: there is no split \"{}\" (valid and test: fresh rows)", task, value_name(split));
  return fmt::format("{}.{}", task, value_name(split));
}

void fit_tokens(ModelConfig& model, std::int64_t vocab, std::int64_t n_out, const std::string& rule,
                const char* why_all) {
  if (n_out < vocab && !reads_key(model, "n_out")) n_out = vocab;
  if (model.vocab == 0) model.vocab = vocab;
  if (model.n_out == 0) model.n_out = n_out;
  if (model.vocab != vocab || model.n_out != n_out)
    fail<ConfigError>("config: model.vocab is {} and model.n_out {}; {} (leave them out)", model.vocab,
                      model.n_out, rule);
  if (why_all != nullptr && !value_is(model.readout, Readout::all))
    fail<ConfigError>("config: model.readout is \"{}\" ({}: set \"all\")", model.readout, why_all);
}

nlohmann::json Task::save() const {
  return nullptr;
}

void Task::load(const nlohmann::json& saved, const std::string& file) {
  if (!saved.is_null())
    fail<ConfigError>("task {}: {} holds the positions of another task (resume with the same data keys)",
                      name(), file);
}

Batch Task::longest_batch() {
  const nlohmann::json positions = save();
  Batch batch = next(0, 0);
  load(positions, "the beginning of the run");
  return batch;
}

std::int64_t segment_length(const RunConfig& config) {
  if (config.train.sequence > 0) return config.train.sequence;
  return config.model.segment > 0 ? config.model.segment : config.model.context;
}

std::string shorter_segments(const RunConfig& config) {
  const char* const key = config.train.sequence > 0  ? "train.sequence"
                          : config.model.segment > 0 ? "model.segment"
                                                     : "model.context";
  return fmt::format("a shorter {}", key);
}

}  // namespace eddy::training
