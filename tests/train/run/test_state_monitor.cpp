// Is the carried state used? What an evaluation measures of it, and when a run warns.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tasks.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/record/metrics.h"
#include "train/run/state_monitor.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

EvalResult with_gain(double gain) {
  EvalResult result;
  result.metrics.emplace_back("state_gain", gain);
  return result;
}

// A run of a recurrent model over a stream of text.
TrainRequest recurrent_run(const TempFolder& folder, const std::string& name) {
  TrainRequest request = tiny_run(folder, name);
  ModelConfig& model = request.config.model;
  model.family = model.model = "block_recurrent";
  model.layers = 2;
  model.recurrent_layers = {1};
  model.states = 3;
  model.segment = 16;
  model.window = 8;
  model.dropout = 0;
  request.config.data.order = "stream";
  return request;
}

}  // namespace

TEST_CASE("state watch: it warns once after a tenth of a run and again after the state was in use") {
  StateMonitor watch(8, false);
  CHECK(watch.warning(with_gain(0), 0.05).empty());
  CHECK(contains(watch.warning(with_gain(0.0005), 0.2), "the model ignores the carried state"));
  CHECK(watch.warning(with_gain(-0.1), 0.3).empty());
  CHECK(watch.warning(with_gain(0.01), 0.4).empty());
  CHECK(contains(watch.warning(with_gain(0), 0.5), "ignores"));
  CHECK(watch.warning(with_gain(std::nan("")), 0.6).empty());
  CHECK(watch.warning(EvalResult(), 0.7).empty());
}

TEST_CASE("state watch: the gain is the loss without the state minus the loss with it") {
  const OneThread one;
  const TempFolder folder;
  RunConfig config = recurrent_run(folder, "run").config;
  TaskArguments arguments;
  arguments.config = config;
  const std::unique_ptr<Task> task = make_task(std::move(arguments));
  task->set_model_sizes(config.model);
  const std::unique_ptr<Model> model = make_model(config.model, Dtype::f64);
  model->params().initialize(2);
  EvalOptions options;
  options.batch = 2;
  EvalResult result = task->evaluate(*model, options);
  REQUIRE(result.carried);
  StateMonitor(3, false).measure(*task, *model, options, result);
  options.batches = 3;
  const double with = task->evaluate(*model, options).loss;
  options.clear_state = true;
  const double without = task->evaluate(*model, options).loss;
  CHECK(extra(result, "state_gain") == without - with);
  CHECK(extra(result, "state_gain") != 0);
  CHECK(extra(result, "state_gate") > 0.4);
  CHECK(extra(result, "state_gate") < 0.6);
  CHECK(extra(result, "state_spread") > 0);

  // Nothing is measured when it is turned off or interrupted, or when no state is carried.
  options = {};
  options.batch = 2;
  for (const bool cleared : {true, false}) {
    EvalResult plain = task->evaluate(*model, options);
    StateMonitor(cleared ? 3 : 0, cleared).measure(*task, *model, options, plain);
    CHECK(std::isnan(extra(plain, "state_gain")));
  }
  EvalResult stopped = task->evaluate(*model, options);
  StateMonitor(3, false).measure(*task, *model, options, stopped,
                                 [](std::int64_t, std::int64_t) { return false; });
  CHECK(std::isnan(extra(stopped, "state_gain")));
  config.train.carry_state = "never";
  TaskArguments again;
  again.config = config;
  const std::unique_ptr<Task> without_state = make_task(std::move(again));
  EvalResult cold = without_state->evaluate(*model, options);
  CHECK(!cold.carried);
  StateMonitor(3, false).measure(*without_state, *model, options, cold);
  CHECK(std::isnan(extra(cold, "state_gain")));
}

TEST_CASE("train: a run says what its state is worth and its report shows it") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = recurrent_run(folder, "run");
  request.config.train.eval_every = 3;
  request.config.train.learning_rate = 0;  // the state stays what it was
  CHECK(train_quietly(request) == TrainEnd::finished);
  const Metrics metrics = metrics_of(request.run_dir);
  REQUIRE(!metrics.evals.empty());
  const auto& found = metrics.evals.back().metrics;
  for (const char* name : {"state_gain", "state_gate", "state_spread"})
    CHECK_MESSAGE(std::any_of(found.begin(), found.end(), [&](const auto& e) { return e.first == name; }),
                  name);
  const std::string report = read_text_file(request.run_dir + "/report.html");
  CHECK(contains(report, "State gain"));
  CHECK(contains(report, "State spread"));

  TrainRequest off = recurrent_run(folder, "off");
  off.config.train.eval_every = 3;
  off.config.train.state_gain_batches = 0;
  CHECK(train_quietly(off) == TrainEnd::finished);
  CHECK(!contains(read_text_file(off.run_dir + "/metrics.jsonl"), "state_gain"));
}

TEST_CASE("train: a state that makes no difference is warned of in events and report") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = recurrent_run(folder, "run");
  // A text of one letter: soon there is nothing that a state could know.
  std::string letters(4000, 'a');
  letters += '\n';
  request.config.data.path = folder.write("same.txt", letters);
  request.config.data.tokenizer = "byte";
  request.config.model.states = 1;
  request.config.train.steps = 60;
  request.config.train.eval_every = 20;
  request.config.train.learning_rate = 0.01;
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string metrics = read_text_file(request.run_dir + "/metrics.jsonl");
  CHECK(contains(metrics, "the model ignores the carried state"));
  const std::string report = read_text_file(request.run_dir + "/report.html");
  CHECK(contains(report, "the model ignores the carried state"));
  CHECK(contains(report, "nats: the state is ignored"));
}
