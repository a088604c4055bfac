// The training loop on the GPU: a text with a state that is carried on, evaluations, checkpoints and recorded
// steps, against the same run on the CPU, without recording, and broken off and resumed. And the host one step ahead:
// results, bits, messages and checkpoints are those of a run that waits for each step,
// whatever comes between two steps.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "tests/gpu/support/captured_training.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/digests.h"
#include "train/step/step_queue.h"
#include "train/tasks/synthetic/synthetic_task.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::gpu_test;
using namespace eddy::test;
namespace fs = std::filesystem;

namespace {

// The third step of a signature is recorded: some are replayed on both sides of the break.
constexpr std::int64_t kSteps = 8, kBroken = 4;

TrainRequest request_for(const TempFolder& folder, const std::string& name, const std::string& device) {
  TrainRequest request = tiny_run(folder, name);
  RunConfig& config = request.config;
  config.model.family = config.model.model = "block_recurrent";
  config.model.recurrent_layers = {0};
  config.model.layers = 1;
  config.model.states = 2;
  config.model.segment = 8;
  config.model.window = 4;
  config.data.order = "stream";
  config.train.device = device;
  config.train.steps = kSteps;
  config.train.schedule = "constant";  // others are spread over the steps
  config.train.batch = 2;
  config.train.eval_every = kBroken;
  config.train.state_gain_batches = 0;
  config.train.checkpoint_every = 2;
  return request;
}

Metrics trained(const TrainRequest& request) {
  REQUIRE(train_quietly(request) == TrainEnd::finished);
  return read_metrics((request.resume.empty() ? request.run_dir : request.resume) + "/metrics.jsonl");
}

// That two runs hold the same parameters, moments and carried state, and have said the same losses.
void check_same_runs(const std::string& a, const Metrics& of_a, const std::string& b, const Metrics& of_b) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors"}) {
    CAPTURE(std::string(file));
    CHECK(read_text_file(latest_of(a) + "/" + file) == read_text_file(latest_of(b) + "/" + file));
  }
  REQUIRE(of_a.steps.size() == of_b.steps.size());
  for (std::size_t i = 0; i < of_a.steps.size(); ++i) CHECK(of_a.steps[i].loss == of_b.steps[i].loss);
  CHECK(of_a.evals.back().loss == of_b.evals.back().loss);
}

ModelConfig ahead_model() {
  ModelConfig config;
  config.family = config.model = "block_recurrent";
  config.vocab = 11;
  config.context = 12;
  config.segment = config.window = 4;
  config.states = 2;
  config.dim = 16;
  config.heads = 2;
  config.layers = 1;
  config.recurrent_layers = {0};
  config.init_std = 0.3;
  config.dropout = 0.1;
  return config;
}

// A state with a NaN in each of its tensors.
State spoiled(const State& state) {
  State all;
  for (const auto& [name, tensor] : state)
    all.set(name, is_floating(tensor.dtype())
                      ? Tensor::full(tensor.shape(), std::numeric_limits<double>::quiet_NaN(), tensor.dtype(),
                                     tensor.device())
                      : tensor);
  return all;
}

// A run of a model that carries a state. Where `waits`, a sample is due after each step, so that none is launched
// before the one before it is done; it changes no bit.
TrainRequest ahead_run(const TempFolder& folder, const std::string& name, bool waits) {
  TrainRequest request = request_for(folder, name, "cuda");
  TrainConfig& config = request.config.train;
  config.steps = 9;
  config.eval_every = config.checkpoint_every = 0;
  config.rollback = "auto";
  if (waits) config.sample_every = 1;
  return request;
}

std::string kept_by(const std::string& run) {
  std::string all;
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors"})
    if (fs::exists(latest_of(run) + "/" + file)) all += bytes_of(latest_of(run), file);
  return all;
}

// What a run has recorded but times: its steps and its events.
std::string recorded_by(const std::string& run) {
  const Metrics metrics = read_metrics(run + "/metrics.jsonl");
  std::string text;
  for (const StepRecord& step : metrics.steps)
    text += fmt::format("{} {} {} {} {} {} {}\n", step.step, step.loss, step.learning_rate, step.grad_norm,
                        step.graph_nodes, step.saved_bytes, step.tokens);
  for (const EvalRecord& eval : metrics.evals) text += fmt::format("{} {}\n", eval.step, eval.loss);
  for (const EventRecord& event : metrics.events)
    if (!contains(event.text, "sample") && !contains(event.text, run))  // a resume names its folder
      text += fmt::format("{} {}\n", event.step, event.text);
  const LoadedRun loaded = load_run(run);
  return text + fmt::format("{} {} {} {} {}", loaded.state.step, loaded.state.tokens, loaded.state.bad_steps,
                            loaded.state.loss, loaded.state.lowest_loss);
}

// Rows of random tokens, which are their own answers.
class WatchedTask final : public SyntheticTask {
 public:
  using SyntheticTask::SyntheticTask;
  // How many batches the task had drawn when a step was done; the step after which it fails, or 0.
  static inline std::map<std::int64_t, int> drawn_by_step;
  static inline std::int64_t fails_after = 0;

  std::string name() const override { return "watched"; }
  std::string summary() const override { return "rows of tokens"; }
  void set_model_sizes(ModelConfig& model) const override { fit_tokens(model, 4, 4, "four tokens"); }
  bool may_read_ahead(std::int64_t step) const override { return step != 7; }
  AfterStep after_step(const Model&, std::int64_t done, double, const EvalProgress&) override {
    drawn_by_step[done] = drawn_;
    if (done == fails_after) throw ValueError("watched: enough");
    return {};
  }

 private:
  Batch draw(const RandomKey& key, std::int64_t rows) const override {
    ++drawn_;
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < rows * row_length(); ++i)
      tokens.push_back(static_cast<std::int32_t>(key.word(static_cast<std::uint64_t>(i)) % 4));
    return make_batch(rows, tokens, tokens, {});
  }
  mutable int drawn_ = 0;
};

TrainRequest watched_run(const TempFolder& folder, const std::string& name, const std::string& device) {
  static bool is_registered = false;
  if (!is_registered)
    register_task({.name = "watched",
                   .summary = "rows of tokens",
                   .make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
                     return std::make_unique<WatchedTask>(arguments.config);
                   }});
  is_registered = true;
  WatchedTask::drawn_by_step.clear();
  WatchedTask::fails_after = 0;
  TrainRequest request = tiny_run(folder, name);
  request.config.data.name = "watched";
  request.config.data.path.clear();
  request.config.train.device = device;
  request.config.train.steps = 9;
  return request;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE(
      "a run on the GPU follows the one on the CPU and is the same without recording and when resumed") {
    const OneThread one;
    const TempFolder folder;
    const TrainRequest whole = request_for(folder, "whole", "cuda");
    const Metrics of_whole = trained(whole);
    REQUIRE(of_whole.steps.size() == kSteps);
    CHECK(of_whole.evals.size() == 3);
    for (const EventRecord& event : of_whole.events)
      CHECK_MESSAGE(!contains(event.text, "uncaptured"), event.text);

    const Metrics on_cpu = trained(request_for(folder, "cpu", "cpu"));
    REQUIRE(on_cpu.steps.size() == kSteps);
    for (std::size_t i = 0; i < kSteps; ++i) {
      // As tests/gpu/test_gpu_models.cpp has it: Adam turns roundings of small gradients into whole moves.
      CAPTURE(i);
      const double want = on_cpu.steps[i].loss;
      CHECK(std::abs(of_whole.steps[i].loss - want) <= (i == 0 ? 1e-5 : 1e-3) * want);
    }

    TrainRequest uncaptured = request_for(folder, "uncaptured", "cuda");
    uncaptured.config.train.capture = "off";
    const Metrics of_uncaptured = trained(uncaptured);
    check_same_runs(uncaptured.run_dir, of_uncaptured, whole.run_dir, of_whole);

    TrainRequest part = request_for(folder, "part", "cuda");
    part.config.train.steps = kBroken;
    static_cast<void>(trained(part));
    TrainRequest rest = request_for(folder, "", "cuda");
    rest.run_dir.clear();
    rest.resume = part.run_dir;
    check_same_runs(rest.resume, trained(rest), whole.run_dir, of_whole);
  }

  TEST_CASE("a run whose batches are cut into micro-batches follows the one on the CPU, recorded or not") {
    const OneThread one;
    const TempFolder folder;
    const auto run_on = [&](const std::string& name, const std::string& device, const std::string& capture) {
      TrainRequest request = request_for(folder, name, device);
      request.config.train.micro_batches = 2;
      request.config.train.steps = 4;
      request.config.train.capture = capture;
      return std::pair(request.run_dir, trained(request));
    };
    const auto [cpu, on_cpu] = run_on("cpu", "cpu", "auto");
    const auto [recorded, of_recorded] = run_on("recorded", "cuda", "auto");
    const auto [plain, of_plain] = run_on("plain", "cuda", "off");
    REQUIRE(of_recorded.steps.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CAPTURE(i);
      const auto &got = of_recorded.steps[i], &want = on_cpu.steps[i];
      CHECK(std::abs(got.loss - want.loss) <= (i == 0 ? 1e-5 : 1e-3) * want.loss);
      CHECK(std::abs(got.grad_norm - want.grad_norm) <= (i == 0 ? 1e-4 : 1e-2) * want.grad_norm);
    }
    check_same_runs(plain, of_plain, recorded, of_recorded);
  }

  TEST_CASE(
      "steps that are launched before the numbers of the last are read have the bits of steps that wait") {
    for (const std::string optimizer : {"adamw", "lion"}) {
      CAPTURE(optimizer);
      // Graphs of two trainings share memory for what they carry: the one that waits has none.
      Training waits(ahead_model(), optimizer, false), ahead(ahead_model(), optimizer, true);
      StepQueue queue(*ahead.model, *ahead.recorder, 2, 1);
      const auto batches = [](int step) {
        const auto number = static_cast<std::uint64_t>(2 * step);
        return std::vector<Batch>{batch_of(8, number), batch_of(8, number + 1)};
      };
      const auto launch = [&](int step) {
        CHECK(queue.launch(*ahead.optimizer, batches(step), ahead.carried, options_of(step, true)));
      };
      launch(0);
      for (int step = 0; step < 8; ++step) {
        CAPTURE(step);
        // Steps 3 and 6 find a state that is not finite: one is captured and the other may be too.
        if (step == 3 || step == 6) waits.carried.state = spoiled(waits.carried.state);
        const StepResult want = waits.step(batches(step), options_of(step, true));
        CHECK(queue.may_run_ahead());
        const bool spoils_next = step + 1 == 3 || step + 1 == 6;
        if (!spoils_next) launch(step + 1);
        const StepResult got = queue.collect(*ahead.optimizer, ahead.carried);
        CHECK(got.finite == (step != 3 && step != 6));
        CHECK(got.finite == want.finite);
        CHECK(got.problem == want.problem);
        CHECK(got.finite == got.problem.empty());
        if (got.finite) CHECK(got.loss == want.loss);
        if (got.finite) CHECK(got.grad_norm == want.grad_norm);
        CHECK(got.graph.nodes == want.graph.nodes);
        if (spoils_next) ahead.carried.state = spoiled(ahead.carried.state);
        // After a bad step nothing is under way: the one behind it is launched again.
        CHECK(queue.under_way() == (spoils_next || !got.finite ? 0 : 1));
        if (queue.under_way() == 0) {
          if (!spoils_next) check_states(ahead.carried.state, waits.carried.state);
          launch(step + 1);
        }
      }
      static_cast<void>(queue.collect(*ahead.optimizer, ahead.carried));
      static_cast<void>(waits.step(batches(8), options_of(8, true)));
      check_states(ahead.carried.state, waits.carried.state);
      CHECK(floats(ahead.model->params().values()) == floats(waits.model->params().values()));
      CHECK(ahead.optimizer->steps() == waits.optimizer->steps());
      CHECK(ahead.optimizer->steps() == 7);
      const auto mine = ahead.optimizer->save(), theirs = waits.optimizer->save();
      for (const auto& [name, tensor] : mine)
        if (is_floating(tensor.dtype())) CHECK_MESSAGE(floats(tensor) == floats(theirs.at(name)), name);
      CHECK(ahead.recorder->graphs() > 0);
    }
  }

  TEST_CASE("a run whose host is a step ahead records and keeps what a run that waits does") {
    const OneThread one;
    const TempFolder folder;
    for (const bool evaluates : {false, true}) {
      CAPTURE(evaluates);
      std::string kept[2], recorded[2];
      for (const bool waits : {false, true}) {
        TrainRequest request = ahead_run(folder, fmt::format("run-{}-{}", evaluates, waits), waits);
        request.config.train.eval_every = evaluates ? 4 : 0;
        request.config.train.checkpoint_every = evaluates ? 3 : 0;
        REQUIRE(train_quietly(request) == TrainEnd::finished);
        kept[waits] = kept_by(request.run_dir);
        recorded[waits] = recorded_by(request.run_dir);
        CHECK(load_run(request.run_dir).step == 9);
      }
      CHECK(kept[0] == kept[1]);
      CHECK(recorded[0] == recorded[1]);
    }
  }

  TEST_CASE("the host is a step ahead but where something is due between two steps") {
    for (const std::string device : {"cuda", "cpu"}) {
      CAPTURE(device);
      const TempFolder folder;
      TrainRequest request = watched_run(folder, "run", device);
      request.config.train.checkpoint_every = 3;
      REQUIRE(train_quietly(request) == TrainEnd::finished);
      const std::map<std::int64_t, int>& drawn = WatchedTask::drawn_by_step;
      REQUIRE(drawn.size() == 9);
      const int before = drawn.at(9) - 9;  // what planning took
      for (const auto& [done, count] : drawn) {
        CAPTURE(done);
        const bool waits = device == "cpu" || done % 3 == 0 || done == 7;
        CHECK(count - before == (waits ? done : done + 1));
      }
    }
  }

  TEST_CASE("steps that are not finite are named with their own numbers and end a run whose host is ahead") {
    const OneThread one;
    const TempFolder folder;
    const TrainRequest teacher = ahead_run(folder, "teacher", false);
    REQUIRE(train_quietly(teacher) == TrainEnd::finished);
    const std::string weights = latest_of(teacher.run_dir) + "/model.safetensors";
    auto tensors = load_safetensors(weights);
    tensors.at("layers.0.mlp.up.weight").mutable_data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    save_safetensors(weights, tensors);
    write_digests(latest_of(teacher.run_dir));
    std::string recorded[2];
    for (const bool waits : {false, true}) {
      TrainRequest request = ahead_run(folder, fmt::format("run-{}", waits), waits);
      request.init_from = teacher.run_dir;
      request.config.train.rollback = "off";
      request.config.train.max_bad_steps = 3;
      CHECK(train_quietly(request) == TrainEnd::too_many_bad_steps);
      recorded[waits] = recorded_by(request.run_dir);
      const LoadedRun loaded = load_run(request.run_dir);
      CHECK(loaded.step == 3);
      CHECK(load_safetensors(latest_of(request.run_dir) + "/optimizer.safetensors").at("steps").item_int() ==
            0);
      for (int step = 0; step < 3; ++step)
        CHECK_MESSAGE(
            contains(recorded[waits], fmt::format("step {} skipped: the gradient is not finite; ", step)),
            recorded[waits]);
    }
    CHECK(recorded[0] == recorded[1]);
  }

  TEST_CASE("a run whose host is ahead goes back to its last good checkpoint as one that waits does") {
    const OneThread one;
    const TempFolder folder;
    TrainRequest start = ahead_run(folder, "start", false);
    start.config.train.checkpoint_every = 3;
    start.config.train.steps = 6;
    REQUIRE(train_quietly(start) == TrainEnd::finished);
    std::string kept[2], recorded[2];
    for (const bool waits : {false, true}) {
      TrainRequest request = start;
      request.run_dir.clear();
      request.resume = folder.path(fmt::format("back-{}", waits));
      fs::copy(start.run_dir, request.resume, fs::copy_options::recursive);
      TrainConfig& train = request.config.train;
      train.learning_rate = 3e38;  // one step with it leaves weights without a finite loss
      train.clip = 0;
      train.max_bad_steps = 2;
      train.steps = 30;
      if (waits) train.sample_every = 1;
      CHECK(train_quietly(request) == TrainEnd::too_many_bad_steps);
      kept[waits] = kept_by(request.resume);
      recorded[waits] = recorded_by(request.resume);
      CHECK(load_run(request.resume).state.rollbacks.size() == 3);
    }
    CHECK(kept[0] == kept[1]);
    CHECK(recorded[0] == recorded[1]);
  }

  TEST_CASE(
      "a signal at any moment and the end of the time leave a checkpoint from which the run is the same") {
    const OneThread one;
    const TempFolder folder;
    const TrainRequest whole = ahead_run(folder, "whole", false);
    REQUIRE(train_quietly(whole) == TrainEnd::finished);
    std::vector<std::int64_t> ends;
    for (const bool by_time : {false, true})
      for (const int moment : {9, 18, 27, 36}) {
        CAPTURE(by_time);
        CAPTURE(moment);
        TrainRequest part = ahead_run(folder, fmt::format("part-{}-{}", by_time, moment), false);
        auto asked = std::make_shared<int>(0);  // how often for the time
        if (by_time) part.config.train.minutes = 1;
        part.clock = [asked, by_time, moment] {
          if (++*asked == moment && !by_time) static_cast<void>(std::raise(SIGTERM));
          return by_time ? *asked * 60.0 / moment : 0.0;
        };
        const TrainEnd end = train_quietly(part);
        CHECK((end == TrainEnd::finished || end == (by_time ? TrainEnd::time_over : TrainEnd::interrupted)));
        ends.push_back(load_run(part.run_dir).step);
        TrainRequest rest = resumed(part, whole.config.train.steps);
        rest.config.train.minutes = 0;
        rest.clock = {};
        CHECK(train_quietly(rest) == TrainEnd::finished);
        CHECK(kept_by(rest.resume) == kept_by(whole.run_dir));
        fs::remove_all(rest.resume);
      }
    std::sort(ends.begin(), ends.end());
    CHECK(std::unique(ends.begin(), ends.end()) - ends.begin() >= 3);
  }

  TEST_CASE("an error while a step is under way keeps that step") {
    const OneThread one;
    const TempFolder folder;
    const TrainRequest whole = watched_run(folder, "whole", "cuda");
    REQUIRE(train_quietly(whole) == TrainEnd::finished);
    const TrainRequest part = watched_run(folder, "part", "cuda");
    WatchedTask::fails_after = 4;
    CHECK_THROWS_AS(train_quietly(part), ValueError);
    CHECK(load_run(part.run_dir).step == 5);
    WatchedTask::fails_after = 0;
    CHECK(train_quietly(resumed(part, 9)) == TrainEnd::finished);
    CHECK(kept_by(part.run_dir) == kept_by(whole.run_dir));
  }
}
