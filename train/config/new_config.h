// The configuration of a new run, gathered from a preset, a file and flags, of which the later ones win, and then
// completed: what nobody gave follows from what was given.
//
//   gathered.merge_run(theirs);                     that whose weights a run starts from, before anything else
//   gathered.merge_preset(name);                    a model, or a configuration of a paper
//   gathered.merge_file("my.toml");
//   gathered.merge_flags({{"model.dim", "64"}});
//   gathered.choose_recipe(text_bytes);             of a run that is to be trained
//   RunConfig config = gathered.completed();
//
// Saved runs, tables and golden cases do not come through here: they keep the defaults of the structs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace eddy::training {

class NewConfig {
 public:
  // Sets the model: one of the registry, whose sizes stay as they are given, or in place of the whole [model] table one
  // of paper_configs(), without its vocabulary, which the data give.
  // errors: ConfigError with the nearest name; `program` begins its text.
  void merge_preset(const std::string& name, const char* program);
  // Sets the whole [model] table.
  void merge_model(ModelConfig model);
  // Sets what a run that starts from the weights of another takes from it: the model, the data, and how long and how
  // many the rows of a batch are. The vocabulary of characters may grow.
  void merge_run(const RunConfig& run);
  // errors: those of load_run_config; ConfigError if it gives both model.params and model.dim, as below.
  void merge_file(const std::string& path);
  // Texts by full key, as flags give them.
  // errors: ConfigError.
  void merge_flags(const std::map<std::string, std::string>& texts);

  // Of a new run of a text without a file, of a model that has a name: sets keys that nobody gave, and that a data set
  // with a name does not bring, by the recipe (recipe.h). bytes_of: the size of the text; 0: not known. With neither
  // minutes nor steps the run gets usual_minutes(). Returns what was chosen, and for what,
  // as a line; empty where nothing was.
  std::string choose_recipe(const std::function<std::int64_t(const DataConfig&)>& bytes_of);

  // The config with the sizes that suit its model where none are given (choose_sizes in models/eddy/config.h), and with
  // data.order "stream" for texts if the model carries a state and the order is not given, or "documents" for a data
  // set of stories. So has a data set with a name its tokenizer and its splits.
  // errors: ConfigError for a family and a model that contradict each other, and for sizes that do not fit.
  RunConfig completed() const;
  // A line for each group of keys that file or flags set away from their defaults, and that the model or the task does
  // not read: "slide does not read model.recurrent_layers; block_recurrent does"; and one for a file without keys.
  std::vector<std::string> unread() const;

 private:
  friend std::string config_file_of(const RunConfig& config);
  // Returns how many keys it has.
  std::size_t merge_source(const ConfigSource& source);
  void merge_names(bool gave_family, bool gave_model);
  // A width given later than a number of parameters takes its place.
  void merge_width(bool gave_params, bool gave_dim);
  // Sets the keys that suit a data set which data.path names, where they are not given. Returns whether the set is many
  // short texts in one file.
  bool merge_data_set(RunConfig& config) const;

  RunConfig config_;
  bool is_free_ = true;          // neither a file nor another run nor a preset of a paper was merged
  std::string preset_;           // a model that a preset named
  std::string empty_file_;       // a file that has no key
  std::string model_of_run_;     // "family/model" of merge_run; empty without
  std::set<std::string> given_;  // full keys that are not chosen: of the preset, the file and the flags
  std::set<std::string> asked_;  // those of the file and the flags
};

// Returns a configuration file (TOML) that completes to this configuration: the keys that differ from their defaults,
// and those that would otherwise be chosen.
std::string config_file_of(const RunConfig& config);

// The model that a preset names, as NewConfig::merge_preset, with its sizes. `others`: names that the caller knows.
// errors: ConfigError.
ModelConfig preset_model(const std::string& name, const char* program, std::vector<std::string> others = {});

}  // namespace eddy::training
