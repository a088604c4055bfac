// The training loop on the GPU: a text with a state that is carried on, evaluations, checkpoints and recorded
// steps, against the same run on the CPU, without recording, and broken off and resumed.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/record/metrics.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

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
}
