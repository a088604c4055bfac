// Runs in bf16: what a checkpoint holds, and going on in the same precision and in another.
#include <doctest/doctest.h>

#include "tensor/files/safetensors.h"
#include "tests/support/files.h"
#include "tests/support/isa_levels.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

TrainRequest bf16_run(const TempFolder& folder, const std::string& name, std::int64_t steps) {
  TrainRequest request = tiny_run(folder, name);
  request.config.train.precision = "bf16";
  request.config.train.steps = steps;
  return request;
}

TrainRequest going_on(const TrainRequest& request, std::int64_t steps, const std::string& precision) {
  TrainRequest result = resumed(request, steps);
  result.config.train.precision = precision;
  return result;
}

// A segment-wise model whose state goes from batch to batch.
void make_stateful(TrainRequest& request) {
  ModelConfig& model = request.config.model;
  model.family = "block_recurrent";
  model.model = "block_recurrent";
  model.layers = 2;
  model.recurrent_layers = {1};
  model.states = 4;
  model.segment = 8;
  model.window = 4;
  request.config.data.order = "stream";
  request.config.data.tokenizer = "byte260";
}

}  // namespace

// Layers read keys and values as activations, which are bf16 unless the processor multiplies bf16 itself.
TEST_CASE("train: a checkpoint of a run in bf16 holds f32, but for keys and values of the state") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = bf16_run(folder, "run", 3);
  make_stateful(request);
  CHECK(train_quietly(request) == TrainEnd::finished);
  for (const auto& file : fs::directory_iterator(latest_of(request.run_dir))) {
    if (file.path().extension() != ".safetensors") continue;
    CAPTURE(file.path().filename().string());
    for (const auto& [name, tensor] : load_safetensors(file.path().string())) {
      CAPTURE(name);
      const bool read_by_layers =
          file.path().filename() == "recurrent.safetensors" && (name.ends_with(".k") || name.ends_with(".v"));
      CHECK((tensor.dtype() == Dtype::f32 || tensor.dtype() == Dtype::i64 ||
             (read_by_layers && tensor.dtype() == Dtype::bf16)));
    }
  }
}

TEST_CASE("train: a run in bf16 that was resumed equals an unbroken one to the bit") {
  const OneThread one;
  for (const bool stateful : {false, true}) {
    CAPTURE(stateful);
    const TempFolder folder;
    TrainRequest whole = bf16_run(folder, "whole", 8), part = bf16_run(folder, "part", 4);
    for (TrainRequest* request : {&whole, &part})
      if (stateful) make_stateful(*request);
    CHECK(train_quietly(whole) == TrainEnd::finished);
    CHECK(train_quietly(part) == TrainEnd::finished);
    CHECK(train_quietly(going_on(part, 8, "bf16")) == TrainEnd::finished);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      CHECK(read_text_file(fs::path(latest_of(whole.run_dir)) / file) ==
            read_text_file(fs::path(latest_of(part.run_dir)) / file));
  }
}

TEST_CASE("train: a run goes on in bf16 after f32 and in f32 after bf16") {
  const OneThread one;
  for (const bool stateful : {false, true})
    for (const std::string first : {"f32", "bf16"}) {
      CAPTURE(stateful);
      CAPTURE(first);
      const TempFolder folder;
      TrainRequest request = bf16_run(folder, "run", 3);
      request.config.train.precision = first;
      if (stateful) make_stateful(request);
      CHECK(train_quietly(request) == TrainEnd::finished);
      CHECK(train_quietly(going_on(request, 6, first == "f32" ? "bf16" : "f32")) == TrainEnd::finished);
      CHECK(load_run(request.run_dir).step == 6);
      CHECK(load_run(request.run_dir, Dtype::bf16).model->params().activations() == Dtype::bf16);
    }
}

TEST_CASE("train: a run in bf16 that is only a check says so") {
  const OneThread one;
  const KeepIsaLevel keep;
  set_isa_level(best_exact_isa_level());
  const TempFolder folder;
  const TrainRequest request = bf16_run(folder, "run", 1);
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(events_of(request.run_dir).find("a check for a GPU's results") != std::string::npos);
}
