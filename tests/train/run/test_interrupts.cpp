// Stops in the middle of things: between accumulated batches, inside an evaluation, a sample, or a validation
// of the curriculum. Each ends the run soon, and the run that goes on equals an unbroken one to the bit.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/tasks/copy_data.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

int number_of(TrainEnd end) {
  return static_cast<int>(end);
}

// An LSTM that reads a text as streams: its checkpoints hold positions and a state.
TrainRequest stream_run(const TempFolder& folder, const std::string& name) {
  TrainRequest request = tiny_run(folder, name);
  request.config.model.family = "staircase";
  request.config.model.model = "lstm";
  request.config.data.order = "stream";
  request.config.train.state_gain_batches = 0;
  return request;
}

TrainRequest going_on(const TrainRequest& plan, const std::string& run) {
  TrainRequest request = plan;
  request.resume = run;
  request.run_dir.clear();
  return request;
}

// The stopped run goes on by the plan, which the unbroken run follows from the beginning.
void check_resumes(const std::string& run, const TrainRequest& unbroken) {
  CHECK(train_quietly(going_on(unbroken, run)) == TrainEnd::finished);
  CHECK(train_quietly(unbroken) == TrainEnd::finished);
  const fs::path mine = latest_of(run), theirs = latest_of(unbroken.run_dir);
  CHECK(mine.filename() == theirs.filename());
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors"}) {
    CHECK(fs::exists(mine / file) == fs::exists(theirs / file));
    if (fs::exists(theirs / file))
      CHECK_MESSAGE(read_text_file(mine / file) == read_text_file(theirs / file), file);
  }
}

// Whether the run goes on from a checkpoint of this step.
bool has_resumed(const std::string& run, std::int64_t step) {
  return contains(events_of(run), "resumed at step " + std::to_string(step));
}

// Trains in a process of its own, which gets SIGTERM a moment after `ready()`. Returns how it ended.
template <class Ready>
int interrupted(const TrainRequest& request, Ready&& ready) {
  Child child([&] { return number_of(train(request)); });
  REQUIRE(wait_until(ready));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  child.signal(SIGTERM);
  return child.wait();
}

}  // namespace

TEST_CASE("train: SIGTERM between accumulated batches does not count the step and loses no position") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest unbroken = stream_run(folder, "unbroken");
  TrainRequest request = stream_run(folder, "run");
  request.config.train.steps = 2;
  CHECK(train_quietly(request) == TrainEnd::finished);
  // From here on a step takes as good as for ever.
  TrainRequest slow = going_on(unbroken, request.run_dir);
  slow.config.train.accumulate = 200'000;
  CHECK(interrupted(slow, [&] { return has_resumed(request.run_dir, 2); }) ==
        number_of(TrainEnd::interrupted));
  CHECK(load_run(request.run_dir).step == 2);
  CHECK(metrics_of(request.run_dir).steps.size() == 2);
  check_resumes(request.run_dir, unbroken);
}

TEST_CASE("train: the minutes end a step between accumulated batches") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest unbroken = stream_run(folder, "unbroken");
  TrainRequest request = stream_run(folder, "run");
  request.config.train.minutes = 0.003;
  request.config.train.accumulate = 200'000;
  Child child([&] { return number_of(train(request)); });
  CHECK(child.wait() == number_of(TrainEnd::time_over));
  CHECK(load_run(request.run_dir).step == 0);
  CHECK(metrics_of(request.run_dir).evals.empty());
  check_resumes(request.run_dir, unbroken);
}

TEST_CASE(
    "train: an evaluation or a sample that takes too much of the minutes is given up and the steps go on") {
  const OneThread one;
  for (const bool evaluates : {true, false}) {
    CAPTURE(evaluates);
    const TempFolder folder;
    TrainRequest request = stream_run(folder, "run");
    TrainConfig& t = request.config.train;
    t.minutes = 0.05;
    t.steps = 1'000'000;
    request.config.data.order = "windows";
    if (evaluates) {
      t.eval_every = 1;
      t.eval_batches = 100'000'000;
    } else {
      t.sample_tokens = 100'000'000;
    }
    Child child([&] { return number_of(train(request)); });
    CHECK(child.wait() == number_of(TrainEnd::time_over));
    CHECK(load_run(request.run_dir).step > 0);
    const Metrics metrics = metrics_of(request.run_dir);
    CHECK(metrics.evals.empty());
    CHECK(metrics.samples.empty() == evaluates);  // a sample is kept as far as it came
    bool said = false;
    for (const EventRecord& event : metrics.events)
      said = said || contains(event.text, "the evaluation was stopped, it takes too much of train.minutes");
    CHECK(said == evaluates);
  }
}

TEST_CASE("train: SIGTERM in a sample ends it there and the run that goes on writes it") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest unbroken = stream_run(folder, "unbroken");
  unbroken.config.train.sample_every = 2;
  unbroken.config.train.sample_tokens = 5;
  TrainRequest request = unbroken;
  request.run_dir = folder.path("run");
  request.config.train.steps = 4;
  request.config.train.sample_tokens = 0;
  request.config.train.checkpoint_every = 2;
  CHECK(train_quietly(request) == TrainEnd::finished);
  fs::remove_all(request.run_dir + "/checkpoints/step-4");
  std::ofstream(request.run_dir + "/checkpoints/latest") << "step-2\n";
  TrainRequest slow = going_on(unbroken, request.run_dir);
  slow.config.train.sample_tokens = 100'000'000;
  CHECK(interrupted(slow, [&] { return has_resumed(request.run_dir, 2); }) ==
        number_of(TrainEnd::interrupted));
  CHECK(load_run(request.run_dir).step == 2);
  CHECK(metrics_of(request.run_dir).samples.empty());
  check_resumes(request.run_dir, unbroken);
  std::vector<std::int64_t> sampled;
  for (const SampleRecord& sample : metrics_of(request.run_dir).samples) sampled.push_back(sample.step);
  CHECK(sampled == std::vector<std::int64_t>{2, 4, 6});
}

TEST_CASE("train: SIGTERM in a validation of the curriculum leaves it to the run that goes on") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest unbroken = curriculum_run(folder, "unbroken", 16);
  TrainRequest request = curriculum_run(folder, "run", 16);
  request.config.data.extensions.get<CopyKeys>().curriculum_batches = 100'000'000;
  CHECK(interrupted(request, [&] {
          return fs::exists(request.run_dir + "/metrics.jsonl") &&
                 metrics_of(request.run_dir).steps.size() == 2;
        }) == number_of(TrainEnd::interrupted));
  CHECK(load_run(request.run_dir).step == 2);
  CHECK(metrics_of(request.run_dir).evals.empty());
  check_resumes(request.run_dir, unbroken);
  check_same_evaluations(metrics_of(request.run_dir).evals, metrics_of(unbroken.run_dir).evals);
}

TEST_CASE("train: a pointer to the best that was not written is written when the run goes on") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = stream_run(folder, "run");
  request.config.train.eval_every = 2;
  CHECK(train_quietly(request) == TrainEnd::finished);
  const fs::path best = request.run_dir + "/checkpoints/best";
  REQUIRE(read_text_file(best) == "step-6\n");  // the loss falls
  std::ofstream(best) << "step-4\n";            // as when the run was killed before it wrote this file
  CHECK(train_quietly(going_on(request, request.run_dir)) == TrainEnd::finished);
  CHECK(read_text_file(best) == "step-6\n");
}
