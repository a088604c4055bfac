// What a run does with products that were timed, on the emulated GPU: what is recorded, what a resumed run takes, and
// what it says where it cannot have that.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tests/emulation/proposals.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tiny_run.h"
#include "train/app/measure/kernels/run_kernels.h"
#include "train/app/measure/step.h"
#include "train/files/text_file.h"
#include "train/plan/environment.h"
#include "train/record/metrics.h"
#include "train/run/digests.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

namespace {

constexpr const char *kTimed = "plain,algorithms=timed", *kFirst = "plain,algorithms=plain";

// Four steps with a checkpoint after two, whose products are timed before the first.
TrainRequest timed_request(const TempFolder& folder, const std::string& name,
                           std::vector<std::string>* said = nullptr) {
  TrainRequest request = tiny_run(folder, name);
  TrainConfig& train = request.config.train;
  train.device = "cuda";
  train.steps = 4;
  train.checkpoint_every = 2;
  train.keep = 5;
  ProveOptions options;
  options.cache = folder.path();
  if (said != nullptr) options.say = [said](const std::string& line) { said->push_back(line); };
  request.choose_kernels = [options](const PlannedRun& run) { choose_kernels_of_run(run, options); };
  return request;
}

std::string weights_of(const TrainRequest& request) {
  const std::string run = request.resume.empty() ? request.run_dir : request.resume;
  return bytes_of(run + "/checkpoints/step-4", "model.safetensors");
}

nlohmann::json state_of(const TrainRequest& request, const char* checkpoint = "step-4") {
  return read_json_file(request.run_dir + "/checkpoints/" + checkpoint + "/state.json");
}

TrainRequest resumed_at_two(const TrainRequest& request) {
  TrainRequest again = resumed(request, 4);
  again.checkpoint = "step-2";
  return again;
}

bool says(const TrainRequest& request, const std::string& text) {
  const std::vector<EventRecord> events = read_metrics(request.run_dir + "/metrics.jsonl").events;
  return std::any_of(events.begin(), events.end(),
                     [&](const EventRecord& event) { return contains(event.text, text); });
}

bool was_said(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return contains(line, text); });
}

// Changes state.json of a checkpoint, as a program of before may have written it.
template <class Change>
void rewrite_state(const TrainRequest& request, const char* checkpoint, const Change& change) {
  const std::string folder = request.run_dir + "/checkpoints/" + checkpoint;
  nlohmann::json state = state_of(request, checkpoint);
  change(state);
  replace_text_file(folder + "/state.json", state.dump(1) + "\n");
  write_digests(folder);
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a run records the algorithms that it took, and resumed it has the bits of an unbroken one") {
    const TempFolder folder;
    const Proposed four;
    set_gpu_kernels(kTimed);
    std::vector<std::string> said;
    const TrainRequest request = timed_request(folder, "run", &said);
    REQUIRE(train_quietly(request) == TrainEnd::finished);
    CHECK(was_said(said, " shapes are timed: "));
    CHECK(contains(state_of(request).at("kernels").get<std::string>(), "algorithms=timed"));
    const auto algorithms = state_of(request).at("algorithms").get<ProductAlgorithms>();
    CHECK(algorithms == product_algorithms());
    REQUIRE(algorithms.size() > 5);
    CHECK(algorithms.front() == gpu_kind());
    CHECK(state_of(request, "step-0").at("algorithms") == algorithms);  // none came later
    CHECK(was_said(environment_lines(), "gpu products: of "));
    const std::string unbroken = weights_of(request);

    set_product_algorithms({});
    set_gpu_kernels("auto");
    set_automatic_kernels("plain");
    REQUIRE(train_quietly(resumed_at_two(request)) == TrainEnd::finished);
    CHECK(weights_of(request) == unbroken);
    CHECK(product_algorithms() == algorithms);
    CHECK_FALSE(says(request, "bits will differ"));

    set_gpu_kernels(kFirst);
    REQUIRE(train_quietly(resumed_at_two(request)) == TrainEnd::finished);
    CHECK(weights_of(request) != unbroken);
    CHECK(says(request, "bits will differ"));
    CHECK(state_of(request).at("algorithms").empty());
  }

  TEST_CASE("each shape is timed once for a GPU and a build, whatever steps it is in") {
    const TempFolder folder;
    const Proposed four;
    set_gpu_kernels(kTimed);
    std::vector<std::string> said;
    const auto algorithms_of = [&](const std::string& name, const char* capture) {
      TrainRequest request = timed_request(folder, name, &said);
      request.config.train.capture = capture;
      said.clear();
      set_product_algorithms({});
      REQUIRE(train_quietly(request) == TrainEnd::finished);
      return state_of(request).at("algorithms").get<ProductAlgorithms>();
    };
    const ProductAlgorithms first = algorithms_of("run", "auto");
    CHECK(was_said(said, " shapes are timed: "));
    CHECK(algorithms_of("same", "auto") == first);  // such steps are known
    CHECK(said.empty());
    emulation::propose({});  // the first would be the fastest now
    cuda::forget_product_plans();
    CHECK(algorithms_of("others", "off") == first);
    CHECK(was_said(said, "ms a step with "));
    CHECK_FALSE(was_said(said, " shapes are timed: "));
  }

  TEST_CASE("a benchmark of steps times their products where that is asked for") {
    const TempFolder folder;
    const Proposed four;
    StepBenchOptions options;
    options.model = tiny_run(folder, "none").config.model;
    options.model.vocab = options.model.n_out = 11;
    options.batch = 2;
    options.sequence = 8;
    options.steps = 1;
    options.product_size = 32;
    options.device = "cuda";
    set_gpu_kernels(kFirst);
    static_cast<void>(bench_step(options));
    set_gpu_kernels(kTimed);
    CHECK(product_algorithms().empty());
    static_cast<void>(bench_step(options));
    CHECK(product_algorithms().size() > 5);
  }

  TEST_CASE(
      "a run whose algorithms cannot be had is refused, and goes on by others where that is asked for") {
    const TempFolder folder;
    const Proposed four;
    set_gpu_kernels(kTimed);
    const TrainRequest request = timed_request(folder, "run");
    REQUIRE(train_quietly(request) == TrainEnd::finished);
    const std::string metrics = read_text_file(request.run_dir + "/metrics.jsonl");

    Proposed::change_library();
    set_gpu_kernels("auto");
    set_automatic_kernels("plain");
    const std::string refused =
        error_of<ConfigError>([&] { static_cast<void>(train_quietly(resumed_at_two(request))); });
    CHECK(contains(refused, "step-2 multiplies by algorithms that were timed for it"));
    CHECK(contains(refused, "EDDY_KERNELS=algorithms=plain"));
    CHECK(read_text_file(request.run_dir + "/metrics.jsonl") == metrics);

    set_gpu_kernels("algorithms=plain");
    CHECK(train_quietly(resumed_at_two(request)) == TrainEnd::finished);
    CHECK(says(request, "bits will differ"));
  }

  TEST_CASE("a run whose kernels name no algorithms goes on with the plain ones") {
    const TempFolder folder;
    const Proposed four;
    set_gpu_kernels("auto");
    set_automatic_kernels("plain");
    TrainRequest request = timed_request(folder, "run");
    request.choose_kernels = {};
    REQUIRE(train_quietly(request) == TrainEnd::finished);
    const std::string unbroken = weights_of(request);
    rewrite_state(request, "step-2", [](nlohmann::json& state) {
      auto kernels = state.at("kernels").get<std::string>();
      kernels.erase(kernels.find(",algorithms="));
      state["kernels"] = kernels;
    });
    set_automatic_kernels("plain,algorithms=timed");
    REQUIRE(train_quietly(resumed_at_two(request)) == TrainEnd::finished);
    CHECK(weights_of(request) == unbroken);
    CHECK(gpu_kernels()->of("algorithms") == "plain");
    CHECK_FALSE(says(request, "bits will differ"));

    rewrite_state(request, "step-2", [](nlohmann::json& state) {
      state["kernels"] = state.at("kernels").get<std::string>() + ",later=kernel";
    });
    REQUIRE(train_quietly(resumed_at_two(request)) == TrainEnd::finished);
    CHECK(says(request, "bits will differ"));
  }
}
