// Tasks and what they measure.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "models/eddy/registry.h"
#include "models/optimizer/optimizer.h"
#include "train/tasks/task.h"

namespace eddy::test {

using namespace training;

// The task of a config, for training or only to be measured.
inline std::unique_ptr<Task> task_of(const RunConfig& config, bool training = true) {
  TaskArguments arguments;
  arguments.config = config;
  arguments.training = training;
  return make_task(std::move(arguments));
}

// Parity of streams of 12 bits, and a model of 8 numbers.
inline RunConfig parity_config(std::int64_t batch) {
  RunConfig config;
  config.model.model = "unit_forget";
  config.model.dim = 8;
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.context = 12;
  config.data.name = "parity";
  config.train.batch = batch;
  return config;
}

// The model of a configuration as training begins, and its optimizer.
struct Begun {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
};
inline Begun begin_training(const Task& task, const RunConfig& config) {
  ModelConfig sizes = config.model;
  task.set_model_sizes(sizes);
  Begun begun{make_model(sizes), nullptr};
  begun.model->params().initialize(static_cast<std::uint64_t>(config.train.seed));
  begun.optimizer = make_optimizer(begun.model->params(), config.train);
  return begun;
}

// A model in f64 that fits a task.
inline std::unique_ptr<Model> model_for(const Task& task, ModelConfig config) {
  task.set_model_sizes(config);
  std::unique_ptr<Model> model = make_model(config, Dtype::f64);
  model->params().initialize(3);
  return model;
}

// A number of an evaluation beside its loss, by name; NaN when it has none of that name.
inline double extra(const EvalResult& result, const std::string& name) {
  for (const auto& [key, value] : result.metrics)
    if (key == name) return value;
  return std::nan("");
}

}  // namespace eddy::test
