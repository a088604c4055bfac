// What the lengths of rows and chunks, and the number of rows, make impossible is refused before a run's
// folder is made or a resumed run goes on.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

TrainRequest run_of(const TempFolder& folder, const char* family, const char* model, std::int64_t sequence) {
  TrainRequest request = tiny_run(folder, "run");
  request.config.model.family = family;
  request.config.model.model = model;
  request.config.model.context = 64;
  request.config.model.segment = 16;
  request.config.model.window = 8;
  request.config.model.chunk = 8;
  request.config.train.sequence = sequence;
  request.config.train.steps = 3;
  return request;
}

}  // namespace

TEST_CASE(
    "train: segments that a carried memory's chunks do not divide are refused before a folder is made") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = run_of(folder, "blockwise_recurrent", "memory_llama", 20);
  const auto refusal = [&] { return error_of<ValueError>([&] { train_quietly(request); }); };
  request.config.data.order = "stream";
  CHECK(contains(refusal(), "segments of 20 tokens in chunks of 8: the last 4 would be lost"));
  request.config.data.order = "windows";
  request.config.train.carry_state = "always";
  CHECK(contains(refusal(), "in chunks of 8"));
  CHECK(!std::filesystem::exists(request.run_dir));
  // Where nothing is carried the last chunk may be shorter.
  request.config.train.carry_state = "never";
  CHECK(train_quietly(request) == TrainEnd::finished);
}

TEST_CASE("train: a memory that segments of one chunk never read is warned of") {
  const OneThread one;
  const TempFolder folder;
  for (const char* carry : {"never", "always"})
    for (const std::int64_t sequence : {8, 16}) {
      CAPTURE(carry);
      CAPTURE(sequence);
      TrainRequest request = run_of(folder, "blockwise_recurrent", "memory_llama", sequence);
      request.run_dir = folder.path(carry + std::to_string(sequence));
      request.config.train.carry_state = carry;
      CHECK(train_quietly(request) == TrainEnd::finished);
      const bool unread = std::string(carry) == "never" && sequence == 8;
      CHECK(contains(events_of(request.run_dir), "no state that was written is ever read") == unread);
    }
}

TEST_CASE("train: rows that are no whole blocks or chunks of a model are refused before a folder is made") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest slide = run_of(folder, "block_recurrent", "slide", 20);
  CHECK(contains(error_of<ShapeError>([&] { train_quietly(slide); }), "20 tokens and a window of 8"));
  TrainRequest stairs = run_of(folder, "staircase", "staircase", 20);
  CHECK(contains(error_of<ShapeError>([&] { train_quietly(stairs); }), "20 tokens in chunks of 8"));
  CHECK(!std::filesystem::exists(slide.run_dir));
}

TEST_CASE("train: the copy tasks train families that have logits at all positions alone") {
  const OneThread one;
  for (const char* name : {"copy", "selective_copy"}) {
    CAPTURE(name);
    const TempFolder folder;
    TrainRequest request = run_of(folder, "blockwise_recurrent", "memory_llama", 0);
    request.config.data.name = name;
    request.config.model.readout = "tail";
    CHECK_NOTHROW(train_quietly(request));
    CHECK(std::filesystem::exists(request.run_dir + "/checkpoints/latest"));
  }
}

TEST_CASE("train: rows longer than the learned positions are refused before a folder is made") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = run_of(folder, "recurrent_transformer", "unit_forget", 0);
  request.config.model.positions = true;
  request.config.model.context = 32;
  request.config.model.segment = 64;
  CHECK(contains(error_of<ValueError>([&] { train_quietly(request); }),
                 "64 positions and a position table of 32"));
  CHECK(
      contains(error_of<ConfigError>([&] { validate(request.config); }),
               "model.segment must not exceed model.context with learned positions: segment 64, context 32"));
  CHECK(!std::filesystem::exists(request.run_dir));
  request.config.model.segment = 32;
  CHECK_NOTHROW(validate(request.config));
}

TEST_CASE("train: an empty cold start is refused where texts of a batch begin at different times") {
  const OneThread one;
  const TempFolder folder;
  folder.write("texts/a.txt", generate_stories(1, 300));
  folder.write("texts/b.txt", generate_stories(2, 700));
  folder.write("texts/c.txt", generate_stories(4, 500));
  TrainRequest request = run_of(folder, "staircase", "staircase", 16);
  RunConfig& config = request.config;
  config.model.cold_start = "empty";
  config.data.path = folder.path("texts");
  config.train.batch = 2;
  for (const char* order : {"stream", "documents"}) {
    CAPTURE(order);
    config.data.order = order;
    config.data.tokenizer = "byte260";
    CHECK(contains(error_of<ConfigError>([&] { train_quietly(request); }),
                   "model.cold_start is \"empty\" and 2 rows begin their texts at different times"));
  }
  CHECK(!std::filesystem::exists(request.run_dir));
  // One row begins each text alone, and the rows of one text all at once.
  config.train.batch = 1;
  config.train.steps = 40;
  CHECK(train_quietly(request) == TrainEnd::finished);
  request.run_dir = folder.path("one");
  config.data.order = "stream";
  config.data.path = folder.path("texts/b.txt");
  config.train.batch = 2;
  CHECK(train_quietly(request) == TrainEnd::finished);
}

TEST_CASE("train: a stream too short for a segment is refused before a folder is made") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = run_of(folder, "blockwise_recurrent", "memory_llama", 16);
  request.config.data.order = "stream";
  request.config.data.path = folder.write("short.txt", generate_stories(3, 60));
  CHECK(!error_of<ValueError>([&] { train_quietly(request); }).empty());
  CHECK(!std::filesystem::exists(request.run_dir));
}

TEST_CASE("train: a run that carries a state is not resumed with another number of rows") {
  const OneThread one;
  const TempFolder folder;
  for (const char* data : {"recall", "text"}) {
    CAPTURE(data);
    TrainRequest request = run_of(folder, "blockwise_recurrent", "memory_llama", 64);
    request.config.model.segment = 64;
    request.config.data.name = data;
    request.config.data.order = data == std::string("text") ? "stream" : "windows";
    request.run_dir = folder.path(data);
    CHECK(train_quietly(request) == TrainEnd::finished);
    TrainRequest again = resumed(request, 5);
    again.config.train.batch = 2;
    CHECK(contains(error_of<ConfigError>([&] { train_quietly(again); }),
                   "train.batch is 2 and the run carries the state of 4 rows"));
    CHECK(load_run(request.run_dir).step == 3);
    again.config.train.batch = 4;
    CHECK(train_quietly(again) == TrainEnd::finished);
  }
}

TEST_CASE("train: a run whose model has no state to carry may be resumed with another number of rows") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = run_of(folder, "blockwise_recurrent", "llama", 64);
  request.config.data.name = "recall";
  CHECK(train_quietly(request) == TrainEnd::finished);
  TrainRequest again = resumed(request, 5);
  again.config.train.batch = 2;
  CHECK(train_quietly(again) == TrainEnd::finished);
}
