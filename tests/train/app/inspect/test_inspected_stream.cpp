// Streams of a task are read as the task gives them: answers at their tokens, a new state where it begins one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/app/inspect/inspected_stream.h"
#include "train/app/inspect/inspection.h"
#include "train/run/checkpoint.h"
#include "train/tasks/copy_data.h"
#include "train/tasks/recall_data.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

LoadedRun trained(const TempFolder& folder, const char* task, const char* model) {
  train_quietly(tiny_task_run(folder, task, model));
  return load_run(folder.path(task));
}

}  // namespace

TEST_CASE("inspected stream: documents of recall begin anew, and their answers stand at the questions") {
  const OneThread one;
  const TempFolder folder;
  const LoadedRun run = trained(folder, "recall", "lstm");
  const TaskStream made = task_stream(run, "run", 100, 1);
  const InspectedStream& stream = made.stream;
  CHECK(std::ssize(stream.tokens) == 112);  // whole calls
  CHECK(stream.segment == 16);
  CHECK(stream.carried);
  CHECK(stream.begins == std::vector<char>{1, 0, 1, 0, 1, 0, 1});
  std::int64_t answers = 0;
  for (std::size_t i = 0; i < stream.tokens.size(); ++i) {
    const bool asked = stream.tokens[i] == kRecallQuestion;
    CHECK((stream.answers[i] != kNotScored) == asked);
    if (asked) CHECK(stream.answers[i] == stream.tokens[i - i % 32]);  // the secret begins the document
    answers += asked ? 1 : 0;
  }
  CHECK(made.token_text(kRecallQuestion) == "?");
  CHECK(made.answer_text(kRecallQuestion + 1) == "A");
  CHECK(made.token_text(2 + 4) == "a");  // noise behind four secrets

  InspectOptions options;
  const Inspection seen = inspect_stream(*run.model, stream, options);
  CHECK(seen.carried);
  CHECK(right_answers(seen).answers == answers);
  const TokenSeries &losses = *seen.find(TokenMeasure::loss),
                    &cleared = *seen.find(TokenMeasure::loss_cleared);
  for (std::size_t i = 0; i < stream.tokens.size(); ++i) {
    CAPTURE(i);
    CHECK(std::isnan(losses.values[i]) == (stream.answers[i] == kNotScored));
    // The first segment of a document has nothing to clear.
    if (stream.answers[i] != kNotScored && i % 32 < 16) CHECK(losses.values[i] == cleared.values[i]);
  }
  CHECK(seen.loss != seen.loss_cleared);
  CHECK_FALSE(seen.states.rows.empty());
}

TEST_CASE("inspected stream: rows that stand alone are read longer, and in parts without the state") {
  const OneThread one;
  const TempFolder folder;
  const LoadedRun run = trained(folder, "parity", "unit_forget");
  const TaskStream made = task_stream(run, "run", 300, 1);
  CHECK(made.stream.segment == 256);
  CHECK(made.stream.apart == 16);
  CHECK(std::ssize(made.stream.tokens) == 512);
  CHECK_FALSE(made.stream.carried);
  std::int32_t parity = 0;
  for (std::size_t i = 0; i < 256; ++i) CHECK(made.stream.answers[i] == (parity ^= made.stream.tokens[i]));
  const Inspection seen = inspect_stream(*run.model, made.stream, {});
  CHECK(seen.carried);
  const TokenSeries &losses = *seen.find(TokenMeasure::loss),
                    &cleared = *seen.find(TokenMeasure::loss_cleared);
  for (std::size_t i = 0; i < 16; ++i)
    CHECK(losses.values[i] == doctest::Approx(static_cast<double>(cleared.values[i])).epsilon(1e-4));
  CHECK(losses.values[33] != cleared.values[33]);
  CHECK(made.answer_text(1) == "odd");
  CHECK(task_stream(run, "run", 300, 2).stream.tokens != made.stream.tokens);
}

TEST_CASE("inspected stream: answers at the end of a row stand at its last tokens") {
  const OneThread one;
  const TempFolder folder;
  const LoadedRun run = trained(folder, "copy", "lstm");
  const TaskStream made = task_stream(run, "run", 25, 1);
  const InspectedStream& stream = made.stream;
  CHECK(stream.segment == 3 + 4 + 3);
  CHECK(std::ssize(stream.tokens) == 30);
  for (std::size_t i = 0; i < stream.tokens.size(); ++i) {
    const bool marker = stream.tokens[i] == kCopyMarker;
    CHECK((stream.answers[i] != kNotScored) == marker);
    if (marker) CHECK(stream.answers[i] == stream.tokens[i - 7]);
  }
  const Inspection seen = inspect_stream(*run.model, stream, {});
  CHECK(right_answers(seen).answers == 9);
  CHECK(std::isfinite(seen.loss));
}

TEST_CASE("inspected stream: a run on text has no streams of its own") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "text");
  train_quietly(request);
  const LoadedRun run = load_run(folder.path("text"));
  CHECK(contains(error_of<ValueError>([&] { task_stream(run, "run", 10, 1); }), "--text FILE"));
}
