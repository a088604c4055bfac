// Rows of a task are those that it would be trained on, drawn by another seed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/tasks.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/app/report/task_rows.h"
#include "train/run/checkpoint.h"
#include "train/step/batch.h"
#include "train/tasks/recall_data.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

LoadedRun run_of(const TempFolder& folder, const char* task) {
  train_quietly(tiny_task_run(folder, task, "lstm"));
  return load_run(folder.path(task));
}

}  // namespace

TEST_CASE("task rows: rows that stand alone are read once each, and are none of training's") {
  const OneThread one;
  const TempFolder folder;
  const LoadedRun run = run_of(folder, "parity");
  const TaskRows rows =
      rows_of_task("test", run, "parity", {.rows = 3, .tokens = 100, .seed = 1, .one_state = true});
  CHECK(rows.tokens.size() == 3);
  CHECK(rows.segment == 16);
  CHECK(rows.targets == 0);
  CHECK(rows.begins == std::vector<char>{1});
  CHECK_FALSE(rows.carries_state);
  const Batch trained = task_of(run.config)->next(0, 0);
  const std::vector<std::int32_t> ids = trained.tokens.to_vector<std::int32_t>();
  for (std::size_t row = 0; row < 3; ++row) {
    CHECK(rows.tokens[row].size() == 16);
    CHECK(rows.answers[row].size() == 16);
    CHECK(std::search(ids.begin(), ids.end(), rows.tokens[row].begin(), rows.tokens[row].end()) == ids.end());
  }
  const TaskRows many = rows_of_task("test", run, "parity", {.tokens = 40});
  CHECK(many.tokens.front().size() == 48);
  CHECK(many.begins == std::vector<char>{1, 1, 1});
}

TEST_CASE("task rows: a row goes on with its state to the end of its document") {
  const OneThread one;
  const TempFolder folder;
  const LoadedRun run = run_of(folder, "recall");
  const TaskRows rows = rows_of_task("test", run, "recall", {.rows = 2, .tokens = 100, .one_state = true});
  CHECK(rows.carries_state);
  CHECK(rows.begins == std::vector<char>{1, 0});
  for (std::size_t row = 0; row < 2; ++row) {
    const std::vector<std::int32_t>& tokens = rows.tokens[row];
    CHECK(tokens.size() == 32);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      CHECK(rows.answers[row][i] == (tokens[i] == kRecallQuestion ? tokens[0] : kNotScored));
  }
}

TEST_CASE("task rows: answers at the end of a row stand at its last tokens") {
  const OneThread one;
  const TempFolder folder;
  const TaskRows rows = rows_of_task("test", run_of(folder, "copy"), "copy", {.rows = 2});
  CHECK(rows.segment == 3 + 4 + 3);
  CHECK(rows.targets == 0);  // as many as tokens; those before the answers are not scored
  for (std::size_t row = 0; row < 2; ++row) {
    CHECK(std::count(rows.answers[row].begin(), rows.answers[row].end(), kNotScored) == 7);
    for (std::size_t i = 7; i < 10; ++i) CHECK(rows.answers[row][i] == rows.tokens[row][i - 7]);
  }
}
