// The list of tasks, as the configuration knows it: their names, and the keys of [data] that each reads. The tasks
// themselves come after the configuration (train/tasks/task.h); the list is in train/tasks/task_registry.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/config_keys.h"

namespace eddy::training {

class Task;
struct DataConfig;
struct RunConfig;
struct TaskArguments;

// One row of the list of tasks.
struct TaskEntry {
  const char* name;                                          // the value of data.name
  const char* summary;                                       // what the model predicts
  std::unique_ptr<Task> (*make)(TaskArguments&& arguments);  // makes the task
  // The keys of [data] beside its own that it reads, separated by blanks:
  // those of DataConfig, and those of other tasks.
  const char* common = "";
  // Describes its own keys (describe_keys_of in task.h). Tasks that give the same function share these keys.
  void (*describe)(KeyList& keys, DataConfig& config) = nullptr;
  // The data sets with a name that it reads (train/fetch/named_data.h), separated by blanks.
  const char* data_sets = "";
  // Checks the rules between its keys.
  // errors: ConfigError naming the keys and their values.
  void (*check)(const RunConfig& config) = nullptr;
};

// All tasks: those of this build, then those that a program registered.
std::span<const TaskEntry> task_registry();

// The names of the tasks that read a data set with a name, in the order of the list.
std::vector<std::string> tasks_of_data_set(std::string_view set);

}  // namespace eddy::training
