// Loops of a program's own: they go on to the same bits, find what was damaged, and are reported beside runs.
#include "train/loops/user_loop.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/module.h"
#include "models/optimizer/adam.h"
#include "ops/ops.h"
#include "tensor/base/error.h"
#include "tensor/create.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tiny_run.h"
#include "train/app/report/side_by_side.h"
#include "train/files/text_file.h"
#include "train/run/checkpoint.h"
#include "train/tasks/task.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

struct Scale {
  explicit Scale(const ParamScope& scope) : factor(scope.param("factor", {3}, Init::ones())) {}
  Tensor operator()(const Tensor& x) const { return x * factor; }
  Tensor factor;
};

// Takes the steps up to `last` from where the folder stands; saves after every third.
std::vector<float> run_to(std::int64_t last, const fs::path& folder, std::int64_t* began = nullptr) {
  auto net = make_module<Scale>(1);
  Adam adam(net.params(), {.learning_rate = 0.1});
  std::int64_t step = 0;
  if (const auto saved = load_training(folder, net, adam)) step = saved->step;
  if (began != nullptr) *began = step;
  MetricsWriter metrics =
      continue_metrics(folder, step, {.name = "scale", .model = "scale", .task = "numbers"});
  for (; step < last; ++step) {
    const auto at = static_cast<float>(step);
    const Tensor error = net(tensor({1.f, 2.f, at})) - tensor({at, 3.f, 1.f});
    const Tensor loss = mean(error * error);
    adam.zero_gradients();
    backward(loss);
    adam.step();
    metrics.write(StepRecord{.step = step + 1, .loss = loss.item()});
    if ((step + 1) % 3 == 0) save_training(folder, net, adam, step + 1);
  }
  return net.params().values().to_vector<float>();
}

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const StepRecord& record : read_metrics(folder / "metrics.jsonl").steps) steps.push_back(record.step);
  return steps;
}

}  // namespace

TEST_CASE(
    "own loops: one that was stopped goes on from its last checkpoint to the bits of one that was not") {
  const TempFolder folder;
  const std::vector<float> whole = run_to(10, folder.path("whole"));
  static_cast<void>(run_to(5, folder.path("parts")));  // the steps 4 and 5 are behind the checkpoint of 3
  std::int64_t began = -1;
  CHECK(run_to(10, folder.path("parts"), &began) == whole);
  CHECK(began == 3);
  CHECK(steps_in(folder.path("parts")) == steps_in(folder.path("whole")));
  const fs::path checkpoints = fs::path(folder.path("parts")) / "checkpoints";
  CHECK(fs::exists(checkpoints / "step-9"));
  CHECK(fs::exists(checkpoints / "step-6"));
  CHECK(!fs::exists(checkpoints / "step-3"));
}

TEST_CASE(
    "own loops: a state and numbers are saved with the step, and nothing is there before the first save") {
  const TempFolder folder;
  auto net = make_module<Scale>(1);
  Adam adam(net.params());
  CHECK(!load_training(folder.path("run"), net, adam));
  SavedTraining training{.step = 7, .numbers = {{"best", 0.1}}};
  CHECK(training.task.is_null());
  training.task = {{"reading", {1, 2}}};
  training.state.set("h", tensor({1.f, 2.f}));
  save_training(folder.path("run"), net, adam, training);
  const auto saved = load_training(folder.path("run"), net, adam);
  REQUIRE(saved);
  CHECK(saved->step == 7);
  CHECK(saved->numbers == training.numbers);
  CHECK(saved->task == training.task);
  CHECK(saved->state.get("h").to_vector<float>() == std::vector<float>{1, 2});
  training.numbers["best"] = std::numeric_limits<double>::infinity();
  CHECK(
      contains(error_of<ValueError>([&] { save_training(folder.path("run"), net.params(), adam, training); }),
               "the number best is inf"));
}

TEST_CASE("own loops: a text in order goes on where it stood, and one that was not told where is refused") {
  const TempFolder folder;
  folder.write("book.txt", generate_stories(1, 4000));
  const auto text = [&](const char* order = "stream") {
    TaskArguments arguments;
    arguments.config.data.path = folder.path("book.txt");
    arguments.config.data.order = order;
    arguments.config.train.batch = 2;
    arguments.config.train.sequence = 16;
    return make_task(std::move(arguments));
  };
  const auto tokens = [](Task& task, std::int64_t step) {
    return task.next(step, 0).tokens.to_vector<std::int32_t>();
  };
  CHECK(contains(error_of<ConfigError>([&] { static_cast<void>(text("streams")); }),
                 "data.order is \"streams\""));
  const std::unique_ptr<Task> whole = text(), again = text();
  for (std::int64_t step = 0; step < 3; ++step) static_cast<void>(tokens(*whole, step));
  CHECK(contains(error_of<ValueError>([&] { static_cast<void>(tokens(*again, 3)); }),
                 "stands at its beginning, and the batch of step 3 is asked for"));
  auto net = make_module<Scale>(1);
  Adam adam(net.params());
  save_training(folder.path("run"), net, adam, {.step = 3, .task = whole->save()});
  const auto saved = load_training(folder.path("run"), net, adam);
  REQUIRE(saved);
  again->load(saved->task, folder.path("run"));
  CHECK(tokens(*again, 3) == tokens(*whole, 3));
}

TEST_CASE("own loops: a damaged checkpoint is an error that names the one that is whole") {
  const TempFolder folder;
  static_cast<void>(run_to(6, folder.path("run")));
  const fs::path weights = fs::path(folder.path("run")) / "checkpoints" / "step-6" / "model.safetensors";
  {
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  const std::string text = error_of<FormatError>([&] { static_cast<void>(run_to(9, folder.path("run"))); });
  CHECK(contains(text, "model.safetensors"));
  CHECK(contains(text, "step-3 is whole"));
}

TEST_CASE("own loops: other parameters are refused, and so is a loop where a run is meant") {
  const TempFolder folder;
  static_cast<void>(run_to(3, folder.path("run")));
  struct Other {
    explicit Other(const ParamScope& scope) : bias(scope.param("bias", {3}, Init::zeros())) {}
    Tensor bias;
  };
  auto other = make_module<Other>(1);
  Adam adam(other.params());
  CHECK(contains(error_of<Error>([&] { static_cast<void>(load_training(folder.path("run"), other, adam)); }),
                 "factor [3] is not in the model"));
  CHECK(contains(error_of<FormatError>([&] { static_cast<void>(load_run(folder.path("run"))); }),
                 "of a program's own loop"));
}

TEST_CASE("own loops: the folder of a run of eddy train is refused, and nothing in it changes") {
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  REQUIRE(train_quietly(request) == TrainEnd::finished);
  const std::string metrics = read_text_file(request.run_dir + "/metrics.jsonl");
  auto net = make_module<Scale>(1);
  Adam adam(net.params());
  CHECK(contains(error_of<IoError>([&] { save_training(request.run_dir, net, adam, 1); }),
                 "is a run of eddy train"));
  CHECK(contains(error_of<IoError>([&] { static_cast<void>(continue_metrics(request.run_dir, 0, {})); }),
                 "is a run of eddy train"));
  CHECK(read_text_file(request.run_dir + "/metrics.jsonl") == metrics);
  CHECK_NOTHROW(static_cast<void>(load_run(request.run_dir)));
}

TEST_CASE("own loops: a report has each as a line of its own, without a configuration") {
  const TempFolder folder;
  static_cast<void>(run_to(4, folder.path("a")));
  static_cast<void>(run_to(4, folder.path("b")));
  const std::vector<ReportedRun> runs = read_reported_runs({folder.path("a"), folder.path("b")});
  CHECK(groups_of(runs).size() == 2);
  CHECK(runs[0].facts.model == "scale");
  CHECK(differences_of(runs, groups_of(runs)).rows.empty());
  CHECK(contains(points_csv(runs), "a,"));
}
