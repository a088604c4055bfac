// The numbers of a state: a model that is given the answer away by one of them, and what cannot be asked.
#include "train/app/inspect/state_numbers.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tasks.h"
#include "tests/support/threads.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

}  // namespace

TEST_CASE("state numbers: means and variances are those of the numbers by their answers") {
  const OneThread one;
  const RunConfig config = parity_config(5);
  const std::unique_ptr<Task> task = task_of(config);
  const std::unique_ptr<Model> model = model_for(*task, config.model);
  const Batch batch = task->next(0, 0);
  const StateStudy study = study_state(*model, batch, 1);
  CHECK(study.rows == 5);
  CHECK(study.time == 12);
  CHECK(study.answers == 60);
  CHECK(study.numbers.size() <= 16);  // a key and a value of 8
  REQUIRE(!study.numbers.empty());
  for (std::size_t i = 1; i < study.numbers.size(); ++i)
    CHECK(study.numbers[i].separation <= study.numbers[i - 1].separation);
  // Anew from the values of the first one.
  double sums[2] = {0, 0}, squares[2] = {0, 0}, counts[2] = {0, 0};
  for (std::size_t i = 0; i < study.values.size(); ++i) {
    const auto kind = static_cast<std::size_t>(study.is_answer[i]);
    CHECK(static_cast<std::int32_t>(kind) == batch.targets.to_vector<std::int32_t>()[i]);
    ++counts[kind];
    sums[kind] += study.values[i];
  }
  for (std::size_t i = 0; i < study.values.size(); ++i) {
    const auto kind = static_cast<std::size_t>(study.is_answer[i]);
    squares[kind] += std::pow(study.values[i] - sums[kind] / counts[kind], 2);
  }
  const double spread = std::sqrt((squares[0] / counts[0] + squares[1] / counts[1]) / 2);
  const double expected = std::abs(sums[1] / counts[1] - sums[0] / counts[0]) / spread;
  CHECK(std::abs(study.numbers[0].separation - expected) <= 1e-8 * expected);
  CHECK(std::abs(study.numbers[0].mean - sums[1] / counts[1]) <= 1e-9);

  const std::string svg = draw_state(study, {task->answer_name(1), task->answer_name(0), 4});
  for (const char* part : {"answer: odd", "answer: even", "trained on streams of 4", "in 5 streams:"})
    CHECK_MESSAGE(contains(svg, part), part);
}

TEST_CASE("state numbers: what a model answers while it streams is what it answers at once") {
  const OneThread one;
  const RunConfig config = parity_config(5);
  const std::unique_ptr<Task> task = task_of(config);
  const std::unique_ptr<Model> model = model_for(*task, config.model);
  EvalOptions options;
  options.batch = 5;
  options.batches = 1;
  const Batch batch = task->next(0, 0);
  const ForwardOutput whole = model->forward(forward_input(batch, kCpu));
  const std::vector<double> logits = raw::contiguous(whole.logits).to_vector<double>();
  const std::vector<std::int32_t> targets = batch.targets.to_vector<std::int32_t>();
  std::int64_t right = 0;
  for (std::size_t i = 0; i < targets.size(); ++i)
    right += (logits[2 * i + 1] > logits[2 * i] ? 1 : 0) == targets[i] ? 1 : 0;
  CHECK(study_state(*model, batch, 1).right == right);
}

TEST_CASE("state numbers: an answer that is never given is refused") {
  const OneThread one;
  const RunConfig config = parity_config(5);
  const std::unique_ptr<Task> task = task_of(config);
  const std::unique_ptr<Model> model = model_for(*task, config.model);
  CHECK(contains(error_of<ValueError>([&] { study_state(*model, task->next(0, 0), 7); }), "never given"));
}
