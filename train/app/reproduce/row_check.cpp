// Makes the tasks and models of rows without training them.
#include "train/app/reproduce/row_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "models/eddy/fit_params.h"
#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "train/app/reproduce/run.h"
#include "train/app/reproduce/vocabulary.h"
#include "train/config/config.h"
#include "train/tasks/task.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

// Tasks by their data: rows on the same data share one.
class Tasks {
 public:
  const Task& of(const RunConfig& config) {
    std::unique_ptr<Task>& task = tasks_[task_key(config)];
    if (!task) {
      TaskArguments arguments;
      arguments.config = config;
      task = make_task(std::move(arguments));
    }
    return *task;
  }

 private:
  std::map<std::string, std::unique_ptr<Task>> tasks_;
};

// The row's model with the sizes that follow from its data, which `config` describes.
ModelConfig whole_model(const ReproduceRow& row, const RunConfig& config, const Task& task) {
  ModelConfig model = config.model;
  task.set_model_sizes(model);
  if (config.data.tokenizer != row.config.data.tokenizer)  // the vocabulary is yet to be made
    model.vocab = model.n_out = row.pieces;
  fit_params(model);
  return model;
}

// Why the recurrence of a model has no part in training: a call is one block, and what the block leaves is held
// constant by the next call. A model that passes a block several times recurs inside it.
std::string recurrence_off(const Model& model, const Task& task, const RunConfig& config) {
  const std::int64_t length = task.row_length() > 0 ? task.row_length() : segment_length(config);
  if (!model.has_blocks() || model.recurrent_steps() > 1 || model.stream_period() < length) return "";
  return fmt::format("its recurrence is off: a block has {} tokens, as many as a call", length);
}

// "layers.0.weight [64, 64]" for each parameter.
std::vector<std::string> shapes_of(const Model& model) {
  std::vector<std::string> shapes;
  for (const Parameter& parameter : model.params().parameters())
    shapes.push_back(fmt::format("{} [{}]", parameter.name, fmt::join(parameter.shape, ", ")));
  return shapes;
}

// Checks that each row which takes the weights of another has its parameters.
void check_weights(const ReproduceTable& table,
                   const std::map<std::string, std::vector<std::string>>& shapes) {
  for (const ReproduceRow& row : table.rows) {
    if (row.weights_of.empty() || !shapes.contains(row.name)) continue;
    const std::vector<std::string>&own = shapes.at(row.name), &others = shapes.at(row.weights_of);
    for (const std::string& shape : own)
      if (std::find(others.begin(), others.end(), shape) == others.end())
        fail<ConfigError>("{}: the row {} cannot take the weights of {}, which has no {}", row.place,
                          row.name, row.weights_of, shape);
    if (own.size() != others.size())
      fail<ConfigError>(
          "{}: the row {} cannot take the weights of {}: it has {} parameters by name, the other {}",
          row.place, row.name, row.weights_of, own.size(), others.size());
  }
}

}  // namespace

std::map<std::string, std::string> check_rows(const ReproduceTable& table,
                                              const std::filesystem::path& folder) {
  Tasks tasks;
  std::map<std::string, std::string> left_out;
  std::vector<std::string> numbers;  // of the rows' tasks
  std::map<std::string, std::vector<std::string>> shapes;
  bool gains = false;  // whether a row measures what its state gains
  for (const ReproduceRow& row : table.rows) {
    try {
      const RunConfig config = without_vocabulary(row, folder);
      choose_device_precision({"reproduce", "train.device", "train.precision"}, config.train.device,
                              config.train.precision);
      const Task& task = tasks.of(config);
      gains = gains || (row.config.train.state_gain_batches > 0 && task.carries_state());
      for (const std::string& name : task.metric_names())
        if (std::find(numbers.begin(), numbers.end(), name) == numbers.end()) numbers.push_back(name);
      std::unique_ptr<Model> model;
      try {
        model = make_unallocated_model(whole_model(row, config, task));
        if (task.row_length() > 0) model->check_length(task.row_length(), task.carries_state());
      } catch (const Error& misfit) {
        left_out.emplace(row.name, misfit.what());
        continue;
      }
      if (const std::string off = recurrence_off(*model, task, config); !off.empty() && !row.off_is_meant)
        fail<ConfigError>("{} (smaller blocks; recurrence_off = true in the row says that it is meant)", off);
      shapes.emplace(row.name, shapes_of(*model));
    } catch (const Error& refused) {
      fail<ConfigError>("{}: the row {} cannot be trained: {}", row.place, row.name, refused.what());
    }
  }
  for (const ReproduceRow& row : table.rows)
    if (left_out.contains(row.weights_of) &&
        left_out
            .emplace(row.name, fmt::format("it takes the weights of {}, which is left out", row.weights_of))
            .second)
      shapes.erase(row.name);
  check_weights(table, shapes);
  std::vector<std::string> measured = numbers;
  for (const CommonColumn& column : common_columns()) measured.emplace_back(column.key);
  const auto check = [&](const char* what, const std::string& key, const std::string& place,
                         const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail<ConfigError>("{}: nothing measures the {} \"{}\" (nearest: {}; there are {})", place, what, key,
                        nearest_match(key, known), fmt::join(known, ", "));
  };
  for (const ReproduceColumn& column : table.columns) {
    if (column.length > 0) {
      if (table.generated)
        check("number at lengths", column.key.substr(0, column.key.rfind('_')), column.place, numbers);
      continue;
    }
    const bool sampled = column.key.starts_with("sampled_") && table.sampled_batches > 0;
    const bool of_test = column.key.starts_with("test_");
    check("column", column.key.substr(sampled ? 8 : of_test ? 5 : 0), column.place, measured);
    if (column.key == "state_gain" && !gains)
      fail<ConfigError>(
          "{}: no row measures state_gain (it needs a task that carries the state, and train.state_gain_batches above 0)",
          column.place);
  }
  if (!table.chart_key.empty()) check("chart", table.chart_key, table.chart_place, numbers);
  if (!table.tune.keys.empty()) check("number to tune by", table.tune.by, table.tune.place, numbers);
  if (!table.learned.by.empty()) check("number to learn", table.learned.by, table.learned.place, numbers);
  return left_out;
}

std::map<std::string, RowSize> row_sizes(const ReproduceTable& table, const std::filesystem::path& folder,
                                         bool all) {
  Tasks tasks;
  std::map<std::string, RowSize> sizes;
  for (const ReproduceRow& row : table.rows) {
    if (!row.left_out.empty()) continue;
    const std::string path = row.config.data.path.text();
    std::error_code error;
    const bool at_hand = path.empty() ? table.generated : std::filesystem::exists(path, error);
    if (!all && !at_hand) continue;
    const RunConfig config = without_vocabulary(row, folder);
    if (!missing_vocabulary(row, folder).empty()) continue;
    const Task& task = tasks.of(config);
    const ModelConfig model = whole_model(row, config, task);
    const std::int64_t time = segment_length(row.config);
    sizes[row.name] = {count_parameters(model).count(),
                       forward_cost(model, time).flops / static_cast<double>(time),
                       recurrence_off(*make_unallocated_model(model), task, config)};
  }
  return sizes;
}

}  // namespace eddy::app
