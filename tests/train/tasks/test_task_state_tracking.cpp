// Random Walk and Algorithm as tasks: what the batches hold, what is measured, what is refused, and runs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tasks.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/app/report/live_report.h"
#include "train/config/run_config.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/tasks/state_tracking.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// A run of a small LSTM on few and short examples.
RunConfig tracking_config(const std::string& name) {
  RunConfig config;
  config.model.family = "staircase";
  config.model.model = "lstm";
  config.model.dim = 16;
  config.model.layers = 1;
  config.model.segment = config.model.context = 8;
  config.data.name = name;
  auto& keys = config.data.extensions.get<StateTrackingKeys>();
  keys.examples = 6;
  keys.valid_examples = 3;
  keys.test_examples = 4;
  keys.statements = 12;
  keys.walk_length = 21;
  config.train.batch = 3;
  config.train.optimizer = "adam";
  config.train.weight_decay = 0;
  return config;
}

LabelledTokens stream_of(const RunConfig& config, StateSplit split, std::int64_t examples) {
  const auto& keys = config.data.extensions.get<StateTrackingKeys>();
  if (config.data.name == "algorithm") {
    AlgorithmPrograms programs;
    programs.statements = keys.statements;
    programs.variables = keys.variables;
    return state_stream(programs, 0, split, examples);
  }
  RandomWalk walk;
  walk.length = keys.walk_length;
  return state_stream(walk, 0, split, examples);
}

std::int64_t scored(const LabelledTokens& stream) {
  return std::count_if(stream.labels.begin(), stream.labels.end(), [](std::int32_t l) { return l >= 0; });
}

TEST_CASE("rows are equal parts of the stream and labels stay at their own tokens") {
  for (const char* name : {"algorithm", "random_walk"}) {
    RunConfig config = tracking_config(name);
    config.data.offset = "zero";
    const LabelledTokens stream = stream_of(config, StateSplit::train, 6);
    const std::size_t part = stream.tokens.size() / 3;
    const auto task = task_of(config);
    for (std::int64_t step = 0; step < static_cast<std::int64_t>(part) / 8; ++step) {
      const Batch batch = task->next(step, 0);
      CHECK(batch.start.defined() == (step == 0));
      const std::vector<std::int32_t> tokens = batch.tokens.to_vector<std::int32_t>(),
                                      targets = batch.targets.to_vector<std::int32_t>();
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::size_t at = i / 8 * part + static_cast<std::size_t>(step) * 8 + i % 8;
        CHECK(tokens[i] == stream.tokens[at]);
        CHECK(targets[i] == stream.labels[at]);
      }
    }
    const Batch again = task->next(100, 0);  // the rows are used up: they begin anew
    REQUIRE(again.start.defined());
    CHECK(again.start.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 1, 1});
  }
}

TEST_CASE("the first segment begins anywhere unless the offset is zero") {
  RunConfig config = tracking_config("random_walk");
  std::vector<std::vector<std::int32_t>> firsts;
  for (const char* offset : {"zero", "auto", "random"}) {
    config.data.offset = offset;
    firsts.push_back(task_of(config)->next(0, 0).tokens.to_vector<std::int32_t>());
  }
  CHECK(firsts[0] != firsts[1]);
  CHECK(firsts[1] == firsts[2]);
}

TEST_CASE("every label of a split is scored once whatever the segment") {
  for (const char* name : {"algorithm", "random_walk"}) {
    std::vector<double> losses;
    for (const std::int64_t segment : {1, 8, 50, 1000}) {
      RunConfig config = tracking_config(name);
      const auto task = task_of(config);
      const auto model = model_for(*task, config.model);
      config.train.sequence = segment;
      config.train.batch = 1;
      config.data.extensions.get<StateTrackingKeys>().examples = 600;  // enough for a segment
      EvalOptions options;
      options.split = Split::test;
      options.batch = 1;
      const EvalResult result = task_of(config)->evaluate(*model, options);
      CHECK(result.tokens == scored(stream_of(config, StateSplit::test, 4)));
      losses.push_back(result.loss);
    }
    for (const double loss : losses) CHECK(std::abs(loss - losses[0]) <= 1e-12 * losses[0]);
  }
}

TEST_CASE("the error is the share of labels that are not the likeliest token") {
  const RunConfig config = tracking_config("algorithm");
  const auto task = task_of(config);
  const auto model = model_for(*task, config.model);
  const LabelledTokens stream = stream_of(config, StateSplit::valid, 3);
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = Tensor::from(stream.tokens, {1, static_cast<std::int64_t>(stream.tokens.size())});
  const Tensor logits = model->forward(input).logits;
  std::int64_t wrong = 0;
  for (std::size_t t = 0; t < stream.labels.size(); ++t) {
    if (stream.labels[t] < 0) continue;
    const double* row = logits.data<double>() + static_cast<std::int64_t>(t) * logits.dim(2);
    if (std::max_element(row, row + logits.dim(2)) - row != stream.labels[t]) ++wrong;
  }
  EvalOptions options;
  options.batch = 1;
  const double expected = 100.0 * static_cast<double>(wrong) / static_cast<double>(scored(stream));
  CHECK(std::abs(extra(task->evaluate(*model, options), "error_percent") - expected) <= 1e-9);
}

TEST_CASE("clearing the state changes what is measured") {
  const RunConfig config = tracking_config("random_walk");
  const auto task = task_of(config);
  const auto model = model_for(*task, config.model);
  EvalOptions kept;
  kept.batch = 1;
  EvalOptions cleared = kept;
  cleared.clear_state = true;
  CHECK(task->carries_state());
  CHECK(task->evaluate(*model, kept).loss != task->evaluate(*model, cleared).loss);
  RunConfig never = config;
  never.train.carry_state = "never";
  CHECK_FALSE(task_of(never)->carries_state());
  CHECK(task_of(never)->evaluate(*model, kept).loss == task->evaluate(*model, cleared).loss);
}

TEST_CASE("positions of losses are counted in the row") {
  const RunConfig config = tracking_config("random_walk");
  const auto task = task_of(config);
  const auto model = model_for(*task, config.model);
  EvalOptions options;
  options.batch = 1;
  options.by_position = true;
  const EvalResult result = task->evaluate(*model, options);
  REQUIRE(result.position_count.size() == 3 * 22);
  for (std::size_t t = 0; t < result.position_count.size(); ++t)
    CHECK(result.position_count[t] == (t % 22 == 0 ? 0 : 1));  // START is not scored
}

TEST_CASE("vocabulary and readout must fit the task") {
  const RunConfig config = tracking_config("algorithm");
  const auto task = task_of(config);
  ModelConfig model = config.model;
  task->set_model_sizes(model);
  CHECK(model.vocab == 26);
  CHECK(model.n_out == 26);
  RunConfig five = config;
  five.data.extensions.get<StateTrackingKeys>().variables = 5;
  CHECK(contains(error_of<ConfigError>([&] { task_of(five)->set_model_sizes(model); }), "28 tokens"));
  model.readout = "last";
  CHECK(contains(error_of<ConfigError>([&] { task->set_model_sizes(model); }), "readout"));
  ModelConfig walk;
  task_of(tracking_config("random_walk"))->set_model_sizes(walk);
  CHECK(walk.vocab == 69);
}

TEST_CASE("splits that there are none of and streams that are too short are refused") {
  RunConfig config = tracking_config("random_walk");
  const auto task = task_of(config);
  const auto model = model_for(*task, config.model);
  EvalOptions options;
  options.split = Split::all;
  CHECK(contains(error_of<ValueError>([&] { task->evaluate(*model, options); }), "train, valid, test"));
  options.split = Split::valid;
  options.batch = 0;
  CHECK_THROWS_AS(task->evaluate(*model, options), ValueError);
  config.train.batch = 100;
  CHECK(contains(error_of<ValueError>([&] { task_of(config); }), "train.batch"));
}

TEST_CASE("other examples than those of the run are refused") {
  RunConfig config = tracking_config("algorithm");
  const std::string same = task_of(config)->data_sha256();
  const auto again = [&](const RunConfig& with) {
    TaskArguments arguments;
    arguments.config = with;
    arguments.expected_sha256 = same;
    arguments.run = "runs/a";
    return make_task(std::move(arguments));
  };
  CHECK(again(config)->data_sha256() == same);
  config.train.batch = 2;
  CHECK(again(config)->data_sha256() == same);
  config.data.extensions.get<StateTrackingKeys>().examples_seed = 1;
  CHECK(contains(error_of<ConfigError>([&] { again(config); }), "runs/a"));
}

TEST_CASE("an interrupted run on state tracking equals an unbroken one to the bit") {
  const OneThread one_thread;
  const TempFolder folder;
  TrainRequest request;
  request.config = tracking_config("algorithm");
  TrainConfig& train = request.config.train;
  train.steps = 8;
  train.eval_every = 0;
  train.checkpoint_every = 0;
  train.sample_tokens = 0;
  train.log_every = 1;
  request.run_dir = folder.path("whole");
  CHECK(train_quietly(request) == TrainEnd::finished);
  train.steps = 3;
  request.run_dir = folder.path("parts");
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
  for (const char* file : {"/model.safetensors", "/recurrent.safetensors"})
    CHECK(read_text_file(latest_of(folder.path("whole")) + file) ==
          read_text_file(latest_of(folder.path("parts")) + file));
}

TEST_CASE("the report shows examples with what the model says") {
  const OneThread one_thread;
  const TempFolder folder;
  for (const char* name : {"algorithm", "random_walk"}) {
    TrainRequest request;
    request.show = app::LiveReport();
    request.config = tracking_config(name);
    request.config.train.steps = 2;
    request.config.train.eval_every = 1;
    request.config.train.sample_tokens = 0;
    request.run_dir = folder.path(name);
    CHECK(train_quietly(request) == TrainEnd::finished);
    const std::string page = read_text_file(request.run_dir + "/report.html");
    CHECK(contains(page, "Error by position in the example"));
    CHECK(contains(page, "said"));
    CHECK(contains(page, std::string(name) == "algorithm" ? "print" : "START"));
    const Metrics metrics = read_metrics(request.run_dir + "/metrics.jsonl");
    REQUIRE_FALSE(metrics.evals.empty());
    CHECK(metrics.evals[0].metrics[0].first == "error_percent");
  }
}

}  // namespace

TEST_CASE("state tracking: a model with an empty cold start is trained and reported on unequal examples") {
  const OneThread one;
  const TempFolder folder;
  for (const char* model : {"staircase", "feedback"}) {
    CAPTURE(model);
    TrainRequest request;
    request.show = app::LiveReport();
    request.config = tracking_config("algorithm");
    request.config.model.model = model;
    request.config.model.heads = 2;
    request.config.model.chunk = 4;
    request.config.model.cold_start = "empty";
    request.config.train.steps = 60;  // past the end of every row
    request.run_dir = folder.path(model);
    CHECK(train_quietly(request) == TrainEnd::finished);
    CHECK(contains(read_text_file(request.run_dir + "/report.html"), "Validation examples"));
  }
}
