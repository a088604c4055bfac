// Going back after too many bad steps: to which checkpoint, how often, and the same to the bit when it is interrupted.
#include "train/run/rollback.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/digests.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

// One step with this rate leaves weights without a finite loss, and so does one with an eighth of it.
constexpr double kHopeless = 3e38;

// Six good steps, with a checkpoint after every second one. `carries`: of a model whose state goes from batch to batch.
TrainRequest good_start(const TempFolder& folder, const std::string& name, bool carries = false) {
  TrainRequest request = tiny_run(folder, name);
  if (carries) {
    request.config.model.family = request.config.model.model = "block_recurrent";
    request.config.model.layers = 2;
    request.config.model.recurrent_layers = {1};
    request.config.model.window = 8;
    request.config.data.order = "stream";
    request.config.train.accumulate = 2;
  }
  TrainConfig& train = request.config.train;
  train.rollback = "auto";
  train.schedule = "constant";
  train.warmup = 0;
  train.checkpoint_every = 2;
  train.max_bad_steps = 3;
  REQUIRE(train_quietly(request) == TrainEnd::finished);
  return request;
}

// The same run, which goes on with this rate.
TrainRequest with_rate(const TrainRequest& request, double rate, std::int64_t steps) {
  TrainRequest next = resumed(request, steps);
  next.config.train.learning_rate = rate;
  next.config.train.clip = 0;
  return next;
}

std::string numbers_at(const std::string& run, std::int64_t step) {
  const std::string folder = run + "/checkpoints/step-" + std::to_string(step);
  return bytes_of(folder, "model.safetensors") + bytes_of(folder, "optimizer.safetensors");
}

// All that the bits of later steps depend on.
std::string end_of(const std::string& run) {
  const LoadedRun loaded = load_run(run);
  std::string text =
      numbers_at(run, loaded.step) + fmt::format(" {} {} {} {}", loaded.step, loaded.state.bad_steps,
                                                 loaded.state.good_step, loaded.state.candidate_step);
  for (const Rollback& back : loaded.state.rollbacks)
    text += fmt::format(" {} {} {}", back.step, back.to, back.rate_factor);
  return text;
}

// A rate with which a run soon fails if it does not go back, and with a quarter of which it does not.
double least_bad_rate(const TempFolder& folder, const TrainRequest& start) {
  for (double rate = 16; rate < kHopeless; rate *= 4) {
    const std::string copy = folder.path("try");
    fs::remove_all(copy);
    fs::copy(start.run_dir, copy, fs::copy_options::recursive);
    TrainRequest request = with_rate(start, rate, 15);
    request.resume = copy;
    request.config.train.rollback = "off";
    if (train_quietly(request) == TrainEnd::too_many_bad_steps) return rate;
  }
  return kHopeless;
}

}  // namespace

TEST_CASE("rollback: a run goes back to its last good checkpoint with half the rate, three times at most") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest start = good_start(folder, "run");
  CHECK(train_quietly(with_rate(start, kHopeless, 60)) == TrainEnd::too_many_bad_steps);
  const TrainingState state = load_run(start.run_dir).state;
  CHECK(state.step == 22);
  REQUIRE(state.rollbacks.size() == 3);
  const std::vector<std::int64_t> steps{10, 14, 18}, to{6, 10, 14};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(state.rollbacks[i].step == steps[i]);
    CHECK(state.rollbacks[i].to == to[i]);
    CHECK(state.rollbacks[i].rate_factor == std::pow(0.5, i + 1));
  }
  const Metrics metrics = metrics_of(start.run_dir);
  REQUIRE(metrics.steps.size() == 22);
  CHECK(metrics.steps[9].learning_rate == kHopeless);
  CHECK(metrics.steps[10].learning_rate == kHopeless / 2);
  CHECK(metrics.steps[21].learning_rate == kHopeless / 8);
  for (const std::size_t after : {10, 14, 18}) CHECK(std::isfinite(metrics.steps[after].loss));
  const std::string events = events_of(start.run_dir);
  CHECK(contains(
      events,
      "step 10: 3 steps in a row were not finite: back to the weights of step-6, the last good checkpoint, "
      "with 0.5 of the learning rate; the data of steps 7 to 10 are skipped (time 1 of 3)"));
  CHECK(contains(events, "stopped: 3 steps in a row were not finite, and the run went back 3 times already"));
  CHECK(contains(read_text_file(start.run_dir + "/report.html"), "back to the weights of step-6"));
}

TEST_CASE("rollback: the weights and moments after it are those of the checkpoint, and the data are others") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest start = good_start(folder, "run");
  TrainRequest next = with_rate(start, kHopeless, 10);
  next.config.train.keep = 100;
  CHECK(train_quietly(next) == TrainEnd::finished);
  CHECK(numbers_at(start.run_dir, 10) == numbers_at(start.run_dir, 6));
  next.config.train.steps = 11;
  CHECK(train_quietly(next) == TrainEnd::finished);
  const Metrics metrics = metrics_of(start.run_dir);
  CHECK(metrics.steps[10].loss != metrics.steps[6].loss);
}

TEST_CASE("rollback: a run that recovers trains to its end, and equals one that was interrupted anywhere") {
  const OneThread one;
  for (const bool carries : {false, true}) {
    CAPTURE(carries);
    const TempFolder folder;
    const TrainRequest start = good_start(folder, "start", carries);
    const double rate = least_bad_rate(folder, start);
    CAPTURE(rate);
    const std::int64_t last = 25;
    const auto copied = [&](const std::string& name) {
      TrainRequest request = with_rate(start, rate, last);
      request.resume = folder.path(name);
      fs::copy(start.run_dir, request.resume, fs::copy_options::recursive);
      return request;
    };
    const TrainRequest whole = copied("whole");
    const TrainEnd end = train_quietly(whole);
    const std::string expected = end_of(whole.resume);
    const TrainingState state = load_run(whole.resume).state;
    CHECK(end == TrainEnd::finished);
    REQUIRE(!state.rollbacks.empty());
    for (const std::int64_t split : {8, 11, 14, 19}) {
      CAPTURE(split);
      // An interrupt, which saves; and a kill, after which the run goes on from the checkpoint before.
      for (const bool killed : {false, true}) {
        CAPTURE(killed);
        TrainRequest parts = copied(fmt::format("parts-{}-{}", split, killed));
        parts.config.train.steps = split;
        CHECK(train_quietly(parts) == TrainEnd::finished);
        if (killed)
          for (const fs::path& checkpoint : checkpoints_of_run(parts.resume))
            if (checkpoint_step(checkpoint) < split) {
              parts.checkpoint = checkpoint.filename().string();
              break;
            }
        parts.config.train.steps = last;
        CHECK(train_quietly(parts) == end);
        CHECK(end_of(parts.resume) == expected);
      }
    }
  }
}

TEST_CASE("rollback: without a good checkpoint the run says so and ends") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest teacher = tiny_run(folder, "teacher");
  CHECK(train_quietly(teacher) == TrainEnd::finished);
  const std::string checkpoint = latest_of(teacher.run_dir), weights = checkpoint + "/model.safetensors";
  auto tensors = load_safetensors(weights);
  tensors.at("layers.0.mlp.up.weight").mutable_data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  save_safetensors(weights, tensors);
  write_digests(checkpoint);
  TrainRequest request = tiny_run(folder, "run");
  request.init_from = teacher.run_dir;
  request.config.train.rollback = "auto";
  request.config.train.max_bad_steps = 3;
  CHECK(train_quietly(request) == TrainEnd::too_many_bad_steps);
  CHECK(load_run(request.run_dir).step == 3);
  CHECK(contains(events_of(request.run_dir), "there is no good checkpoint yet to go back to"));
}

TEST_CASE("rollback: a good checkpoint that is damaged is named, and the run ends as without it") {
  const OneThread one;
  const TempFolder folder;
  for (const std::string file : {"model.safetensors", "optimizer.safetensors"}) {
    CAPTURE(file);
    const std::string name = "run-" + file;
    const TrainRequest start = good_start(folder, name);
    TrainRequest next = with_rate(start, kHopeless, 8);
    CHECK(train_quietly(next) == TrainEnd::finished);
    const std::string good = name + "/checkpoints/step-6/" + file;
    folder.write(good, read_text_file(folder.path(good)) + "x");
    next.config.train.steps = 60;
    CHECK(train_quietly(next) == TrainEnd::too_many_bad_steps);
    CHECK(load_run(start.run_dir).step == 10);
    CHECK(numbers_at(start.run_dir, 10) == numbers_at(start.run_dir, 8));  // bad steps change nothing
    CHECK(contains(events_of(start.run_dir), "step-6, the last good checkpoint, cannot be taken up"));
  }
}

TEST_CASE(
    "rollback: the checkpoint to go back to outlives those that are kept, and is given up when it is switched off") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest start = good_start(folder, "run");
  TrainRequest next = with_rate(start, kHopeless, 9);
  next.config.train.keep = 1;
  next.config.train.max_bad_steps = 100;
  CHECK(train_quietly(next) == TrainEnd::finished);
  CHECK(fs::exists(start.run_dir + "/checkpoints/step-6"));
  CHECK(load_run(start.run_dir).state.good_step == 6);
  next.config.train.rollback = "off";
  next.config.train.steps = 10;
  CHECK(train_quietly(next) == TrainEnd::finished);
  CHECK(load_run(start.run_dir).state.good_step == -1);
}
