// What a program finds out about the kernels of a GPU before it uses them: sound ones pass, and one with a planted
// fault is refused, whatever the fault does to its process. This program itself serves the trials (main.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "ops/core/warnings.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tiny_run.h"
#include "train/app/measure/kernels/prove.h"
#include "train/app/measure/kernels/run_kernels.h"
#include "train/app/measure/kernels/trials.h"
#include "train/files/digest.h"
#include "train/files/text_file.h"
#include "train/record/metrics.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::gpu_test;
using namespace eddy::test;

namespace {

// EDDY_PLANTED for the processes that serve trials, while alive.
class Planted {
 public:
  explicit Planted(const char* fault) { ::setenv("EDDY_PLANTED", fault, 1); }
  ~Planted() { ::unsetenv("EDDY_PLANTED"); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
};

ProveOptions options_in(const TempFolder& folder, std::vector<std::string> trials) {
  ProveOptions options;
  options.command = {"/proc/self/exe", "--trials"};
  options.cache = folder.path();
  options.seconds = 120;
  options.trials = std::move(trials);
  return options;
}

const KernelTrial& trial_of(const KernelVerdict& verdict, const std::string& name) {
  const auto found = std::find_if(verdict.trials.begin(), verdict.trials.end(),
                                  [&](const KernelTrial& trial) { return trial.name == name; });
  REQUIRE_MESSAGE(found != verdict.trials.end(), name);
  return *found;
}

bool holds(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return contains(line, text); });
}

TrainRequest request_in(const TempFolder& folder, const std::string& name) {
  TrainRequest request = tiny_run(folder, name);
  request.config.train.device = "cuda";
  request.config.train.precision = "bf16";
  request.config.model.dim = 64;
  request.config.train.steps = 2;
  return request;
}

std::vector<std::string> events_of(const TrainRequest& request) {
  REQUIRE(train_quietly(request) == TrainEnd::finished);
  std::vector<std::string> texts;
  for (const EventRecord& event :
       read_metrics((request.resume.empty() ? request.run_dir : request.resume) + "/metrics.jsonl").events)
    texts.push_back(event.text);
  return texts;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("the kernels of this build pass their trials, and the fastest are taken") {
    const TempFolder folder;
    std::vector<std::string> some;  // the emulated GPU takes too long for the samples of all ops
    if (kEmulated) {
      some = {"op/softmax", "op/linear"};
      for (const std::string& name : kernel_trials())
        if (!name.starts_with("op/")) some.push_back(name);
    }
    const auto verdict = prove_kernels(options_in(folder, some));
    REQUIRE(verdict);
    for (const KernelTrial& trial : verdict->trials) {
      CHECK_MESSAGE(trial.problem == "", trial.name);
      if (contains(trial.name, "=") && trial.left_out.empty())
        CHECK(trial.times.empty() == (trial.name == "algorithms=timed"));  // no time speaks for all shapes
    }
    use_verdict(*verdict);
    CHECK(describe(gpu_kernels().value()) == verdict->kernels());
    CHECK(take_warnings() == std::vector<std::string>());
  }

  // Attention in f32 is not for tensor cores: the plain kernel runs, which is said.
  TEST_CASE(
      "a kernel can be tried by the samples of its op, and is left out where its benchmark runs on another") {
    std::vector<TrialTime> times;
    CHECK(try_samples("attention=mma", gpu(), {.small = true}, times) == "");
    CHECK(!times.empty());
    CHECK(holds(take_warnings(), "goes by the plain kernels"));
    CHECK(contains(error_of<ValueError>([&] { try_samples("recurrence=fused", gpu(), {}, times); }),
                   "no op 'recurrence'"));
  }

  TEST_CASE("a run goes on with another kernel in the place of one that computes wrongly, and says so") {
    const TempFolder folder;
    const Planted planted("mma:wrong");
    on_first_gpu_use([&] { choose_proven_kernels(options_in(folder, {"op/softmax", "attention=mma"})); });
    const std::vector<std::string> events = events_of(request_in(folder, "run"));
    CHECK_MESSAGE(holds(events, "attention=mma: y of "), (events.empty() ? "no event" : events.front()));
    const GpuKernels kernels = gpu_kernels().value();
    CHECK(kernels.of("attention") == "plain");
    CHECK(kernels.of("short_attention") == "plain");
    CHECK(holds(kernels.refused, "attention=mma: y of "));
    CHECK_THROWS_AS(set_automatic_kernels("attention=mma"), DeviceError);
    set_gpu_kernels("attention=mma");  // who names it gets it
    CHECK(gpu_kernels()->of("attention") == "mma");
  }

  TEST_CASE("a kernel that ends its process, or does not return, costs itself alone") {
    const TempFolder folder;
    {
      const Planted planted("plain:crash");
      const auto verdict = prove_kernels(options_in(folder, {"op/softmax", "op/attention", "op/add"}));
      REQUIRE(verdict);
      CHECK(contains(trial_of(*verdict, "op/attention").problem, "signal 6"));
      CHECK(trial_of(*verdict, "op/softmax").passed());
      CHECK(trial_of(*verdict, "op/add").passed());
      CHECK(contains(error_of<DeviceError>([&] { use_verdict(*verdict); }), "op/attention"));
    }
    const Planted planted("mma:hang");
    ProveOptions options = options_in(folder, {"attention=mma", "products=fused"});
    options.again = true;
    options.seconds = 8;
    const auto verdict = prove_kernels(options);
    REQUIRE(verdict);
    CHECK(trial_of(*verdict, "attention=mma").problem == "it did not end in 8 s");
    CHECK(trial_of(*verdict, "products=fused").passed());
    CHECK(verdict->refused() == "attention=mma");
  }

  TEST_CASE("a verdict is made once, also by two that begin at once, and kept for this build and GPU") {
    const TempFolder folder;
    std::mutex mutex;
    int made = 0;
    ProveOptions options = options_in(folder, {"products=fused"});
    options.say = [&](const std::string& line) {
      const std::lock_guard lock(mutex);
      if (contains(line, "are tried on")) ++made;
    };
    std::string kernels[2];
    std::thread other([&] { kernels[1] = prove_kernels(options)->kernels(); });
    kernels[0] = prove_kernels(options)->kernels();
    other.join();
    CHECK(made == 1);
    CHECK(kernels[0] == kernels[1]);
    options.command = {"/nowhere/eddy"};
    CHECK(prove_kernels(options)->kernels() == kernels[0]);
    CHECK(kept_verdict(folder.path())->kernels() == kernels[0]);
    options.again = true;
    CHECK(contains(error_of<IoError>([&] { prove_kernels(options); }), "no process can be started"));
    CHECK_FALSE(read_verdict(folder.path(), gpu_identity(), "another build"));
    CHECK_FALSE(read_verdict(folder.path(), "another GPU", program_digest()));
  }

  TEST_CASE("without a folder to keep a verdict in plain kernels run, which is said") {
    const TempFolder folder;
    ProveOptions options = options_in(folder, {"products=fused"});
    options.cache.clear();
    choose_proven_kernels(options);
    const GpuKernels kernels = gpu_kernels().value();
    for (const auto& [choice, kernel] : kernels.chosen) CHECK_MESSAGE(kernel == "plain", choice);
    CHECK(holds(take_warnings(), "EDDY_CACHE_DIR"));
    set_gpu_kernels("plain,attention=mma");
    options.command.clear();  // nothing is left to choose: nothing is tried
    choose_proven_kernels(options);
    CHECK(gpu_kernels()->of("attention") == "mma");
  }

  TEST_CASE("a new run takes the kernels that its own steps are the fastest with, once for such steps") {
    const TempFolder folder;
    ProveOptions options = options_in(folder, {"products=fused"});
    int timed = 0;
    options.say = [&](const std::string& line) { timed += contains(line, " ms a step with ") ? 1 : 0; };
    const auto kernels_of = [&](const std::string& name) {
      TrainRequest request = request_in(folder, name);
      request.choose_kernels = [&](const PlannedRun& run) { choose_kernels_of_run(run, options); };
      static_cast<void>(events_of(request));
      return read_json_file(latest_of(request.run_dir) + "/state.json").at("kernels").get<std::string>();
    };
    const std::string taken = kernels_of("run");
    CHECK(timed == 2);
    CHECK(taken == describe(gpu_kernels().value()));
    set_automatic_kernels("plain");
    CHECK(kernels_of("again") == taken);
    CHECK(timed == 2);
    set_gpu_kernels("products=fused,recurrence=fused");  // who names them gets them
    CHECK(contains(kernels_of("named"), "recurrence=fused,products=fused"));
    CHECK(timed == 2);
  }

  TEST_CASE("a run in f32 that did not choose it says what bf16 would bring, by steps that are timed once") {
    const TempFolder folder;
    ProveOptions options = options_in(folder, {"products=fused"});
    const auto events = [&](const std::string& name) {
      TrainRequest request = request_in(folder, name);
      request.config.train.precision = "f32";
      request.precision_note = [&](const PlannedRun& run) { return bf16_text(run, options); };
      std::vector<std::string> texts = events_of(request);
      std::erase_if(texts, [](const std::string& text) { return !contains(text, "--train.precision bf16"); });
      return texts;
    };
    const std::vector<std::string> first = events("run");
    REQUIRE(first.size() == 1);
    CHECK(contains(first.front(), "precision: f32, "));
    CHECK(contains(first.front(), " ms a step here; --train.precision bf16 makes it "));
    CHECK(events("again") == first);
    options.cache.clear();  // and nothing may be tried
    CHECK(events("untried") == std::vector<std::string>{bf16_text()});
    set_gpu_kernels("plain");  // nor where no kernel is left to choose
    options = options_in(folder, {"products=fused"});
    CHECK(events("named") == std::vector<std::string>{bf16_text()});
  }

  TEST_CASE("a resumed run keeps its kernels, or says that its bits will differ") {
    const TempFolder folder;
    set_automatic_kernels("attention=mma,recurrence=plain,products=plain");
    const TrainRequest request = request_in(folder, "run");
    static_cast<void>(events_of(request));
    set_automatic_kernels("plain");
    CHECK_FALSE(holds(events_of(resumed(request, 3)), "other kernels"));
    CHECK(gpu_kernels()->of("attention") == "mma");
    set_automatic_kernels("plain");
    refuse_gpu_kernels("attention=mma");
    CHECK(holds(events_of(resumed(request, 4)), "bits will differ"));
    CHECK(gpu_kernels()->of("attention") == "plain");
  }
}
