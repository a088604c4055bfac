// A training run small enough to take milliseconds, and what it leaves in its folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "train/app/report/live_report.h"
#include "train/config/run_config.h"
#include "train/files/text_file.h"
#include "train/run/trainer.h"
#include "train/tasks/copy_data.h"
#include "train/text/stories/stories.h"

namespace eddy::test {

using namespace training;

// A run of a 16-wide model on stories in `folder`.
inline TrainRequest tiny_run(const TempFolder& folder, const std::string& name) {
  const std::string text = folder.path("text.txt");
  if (!std::filesystem::exists(text)) folder.write("text.txt", generate_stories(3, 4000));
  TrainRequest request;
  request.run_dir = folder.path(name);
  request.command_line = "eddy train tiny.toml";
  request.show = app::LiveReport();
  RunConfig& config = request.config;
  config.model.dim = 16;
  config.model.heads = 2;
  config.model.context = 16;
  config.model.dropout = 0.1;
  config.data.path = text;
  TrainConfig& train = config.train;
  train.steps = 6;
  train.batch = 4;
  train.eval_every = 0;
  train.eval_batches = 2;
  train.checkpoint_every = 0;
  train.sample_tokens = 0;
  train.log_every = 1;
  return request;
}

// A run of one step of a task without texts, in the folder `task`: its rows have 16 tokens, a secret or symbols and 4
// of noise. `model` is of the family recurrent_transformer, or the LSTM.
inline TrainRequest tiny_task_run(const TempFolder& folder, const std::string& task,
                                  const std::string& model) {
  TrainRequest request = tiny_run(folder, task);
  RunConfig& config = request.config;
  config.data.name = task;
  config.data.path = "";
  config.data.noise = 4;
  config.data.extensions.get<CopyKeys>().symbols = 3;
  config.data.extensions.get<CopyKeys>().noise_max = 4;
  config.model.family = model == "lstm" ? "staircase" : "recurrent_transformer";
  config.model.model = model;
  config.model.positions = false;
  config.train.steps = 1;
  return request;
}

// The same run, to go on until `steps`.
inline TrainRequest resumed(const TrainRequest& request, std::int64_t steps) {
  TrainRequest result = request;
  result.resume = request.run_dir;
  result.run_dir.clear();
  result.config.train.steps = steps;
  return result;
}

// Trains, with nothing on standard output.
inline TrainEnd train_quietly(const TrainRequest& request) {
  const Quiet quiet;
  return train(request);
}

// The names of the checkpoints of a run, sorted as text; what is hidden is named too.
inline std::vector<std::string> checkpoints_of(const std::string& run) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The folder of a run's latest checkpoint.
inline std::string latest_of(const std::string& run) {
  std::string name = read_text_file(run + "/checkpoints/latest");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return run + "/checkpoints/" + name;
}

// The bytes of a file of a checkpoint.
inline std::string bytes_of(const std::string& checkpoint, const char* file) {
  return read_text_file(std::filesystem::path(checkpoint) / file);
}

}  // namespace eddy::test
