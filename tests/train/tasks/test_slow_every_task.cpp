// Every registered model on every task of the registry: a run trains, evaluates, and resumes to the bit. Models that
// can keep a state from call to call are there twice. No model is left out of a task.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/record/metrics.h"
#include "train/tasks/copy_data.h"
#include "train/tasks/recall_data.h"
#include "train/tasks/state_tracking.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

constexpr std::int64_t kSteps = 4, kBroken = 2;
constexpr std::int64_t kSegment = 16;

// Records of the grey form of CIFAR-10.
std::string grey_images(int count, int first) {
  std::string bytes;
  for (int i = first; i < first + count; ++i) {
    bytes += static_cast<char>(i % 10);
    for (int pixel = 0; pixel < 1024; ++pixel)
      bytes += static_cast<char>((i * 37 + pixel * (i % 7 + 1)) & 255);
  }
  return bytes;
}

void write_images(const TempFolder& folder) {
  for (int i = 1; i <= 5; ++i)
    folder.write("images/data_batch_" + std::to_string(i) + ".bin", grey_images(1, i));
  folder.write("images/test_batch.bin", grey_images(2, 6));
}

// A run of a task with sizes that suit a model, which are not given.
TrainRequest run_of(const TempFolder& folder, const std::string& run, const ModelName& name, bool keeps_state,
                    const std::string& task) {
  TrainRequest request = tiny_run(folder, run);
  ModelConfig& model = request.config.model;
  DataConfig& data = request.config.data;
  TrainConfig& train = request.config.train;
  model.family = name.family;
  model.model = name.model;
  model.dim = 8;
  model.mlp_dim = 8;
  model.heads = 2;
  if (model.model != "universal") model.layers = 2;  // which has one
  model.keep_state = keeps_state;
  model.context = model.segment = kSegment;
  train.steps = kSteps;
  train.batch = 2;
  train.eval_every = kBroken;
  train.eval_batches = 4;  // in some of which something is scored
  train.state_gain_batches = 1;
  train.threads = 1;

  data.name = task;
  if (task == "text") {
    data.order = "stream";
  } else {
    data.path.clear();
  }
  auto& copy = data.extensions.get<CopyKeys>();
  copy.symbols = 4;
  data.noise = task == "recall" ? 5 : 8;
  copy.noise_max = 24;
  copy.curriculum_every = 2;
  copy.curriculum_batches = 1;
  data.extensions.get<RecallKeys>().segments = 2;
  auto& tracking = data.extensions.get<StateTrackingKeys>();
  tracking.examples = 12;
  tracking.valid_examples = tracking.test_examples = 4;
  tracking.statements = 8;
  tracking.walk_length = 20;
  if (task == "algorithm") {  // labels are few: one of a program
    tracking.examples = 60;
    train.batch = 8;
  }
  if (task == "cifar10") {
    data.path = folder.path("images");
    model.context = model.segment = 1024;
    model.tied = false;
    model.readout = reads_key(model, "readout") ? "last" : "all";
    train.batch = 1;
  }
  if (task == "copy" || task == "selective_copy")
    model.readout = reads_key(model, "readout") ? "tail" : "all";
  choose_sizes(model, {"layers"});
  return request;
}

// The losses of all steps and evaluations of a run.
std::vector<double> losses_of(const std::string& run) {
  const Metrics metrics = read_metrics(run + "/metrics.jsonl");
  std::vector<double> losses;
  for (const StepRecord& step : metrics.steps) losses.push_back(step.loss);
  for (const EvalRecord& evaluation : metrics.evals) losses.push_back(evaluation.loss);
  return losses;
}

void check_same_bytes(const std::string& a, const std::string& b) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    CHECK_MESSAGE(bytes_of(a, file) == bytes_of(b, file), file);
  const bool has_state = fs::exists(fs::path(a) / "recurrent.safetensors");
  CHECK(has_state == fs::exists(fs::path(b) / "recurrent.safetensors"));
  if (has_state) CHECK(bytes_of(a, "recurrent.safetensors") == bytes_of(b, "recurrent.safetensors"));
}

}  // namespace

TEST_CASE("every task: each model trains and evaluates and goes on from a checkpoint to the bit") {
  const OneThread one;
  const TempFolder folder;
  write_images(folder);
  int run = 0;
  for (const TaskEntry& task : task_registry())
    for (const ModelName& name : model_registry())
      for (const bool keeps_state : {false, true}) {
        ModelConfig config;
        config.family = name.family;
        config.model = name.model;
        if (keeps_state && !reads_key(config, "keep_state")) continue;
        const std::string task_name = task.name, model_name = name.model;
        CAPTURE(task_name);
        CAPTURE(model_name);
        CAPTURE(keeps_state);
        const auto request = [&](const char* which) {
          return run_of(folder, which + std::to_string(run), name, keeps_state, task_name);
        };
        ++run;
        const TrainRequest whole = request("whole");
        TrainRequest part = request("part");
        part.config.train.steps = kBroken;
        CHECK(train_quietly(whole) == TrainEnd::finished);
        CHECK(train_quietly(part) == TrainEnd::finished);
        CHECK(train_quietly(resumed(part, kSteps)) == TrainEnd::finished);
        check_same_bytes(latest_of(whole.run_dir), latest_of(part.run_dir));
        const std::vector<double> losses = losses_of(whole.run_dir);
        CHECK(losses.size() >= static_cast<std::size_t>(kSteps) + 2);  // of steps and evaluations
        for (const double loss : losses) CHECK(std::isfinite(loss));
        const auto last = [](const std::string& folder_of_run) {
          const Metrics metrics = read_metrics(folder_of_run + "/metrics.jsonl");
          REQUIRE(!metrics.evals.empty());
          return metrics.evals.back().loss;
        };
        CHECK(last(whole.run_dir) == last(part.run_dir));
      }
}
