// Tasks and what they measure.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "models/eddy/registry.h"
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
