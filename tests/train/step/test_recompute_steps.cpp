// Whole optimizer steps whose activations are computed again: the same parameters to the bit, and less memory.
#include "models/recompute.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "models/eddy/registry.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_run.h"
#include "train/config/run_config.h"
#include "train/run/checkpoint.h"
#include "train/step/train_step.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

ModelConfig small(const ModelName& name) {
  ModelConfig config;
  config.family = name.family;
  config.model = name.model;
  config.vocab = 7;
  config.context = config.dim = 16;
  config.heads = 2;
  config.layers = config.model == "universal" ? 1 : 2;
  config.dropout = 0.2;
  choose_sizes(config, {"vocab", "context", "dim", "heads", "layers", "dropout"});
  return config;
}

// Two batches of 4 rows of 16 tokens.
std::vector<Batch> batches_of_step(std::int64_t step) {
  std::vector<Batch> batches;
  const std::vector<std::int32_t> tokens = random_tokens(4 * 16 * 3 + 8, 7);
  for (std::ptrdiff_t i = 0; i < 2; ++i) {
    const auto begin = tokens.begin() + 64 * i + step;
    batches.push_back(make_batch(4, {begin, begin + 64}, {begin + 1, begin + 65}));
  }
  return batches;
}

// The parameters after three steps, and the most memory that was live in them.
struct Steps {
  std::vector<float> values;
  std::vector<double> losses;
  std::int64_t peak = 0;
};

Steps steps_of(const ModelConfig& config, std::int64_t micro_batches, Recompute recompute) {
  const std::unique_ptr<Model> model = make_model(config, Dtype::f32);
  model->params().initialize(3);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(model->params(), TrainConfig());
  Steps steps;
  StepOptions options;
  options.learning_rate = 0.01;
  options.seed = 5;
  options.micro_batches = micro_batches;
  options.recompute = recompute;
  options.carry_state = carries_state(config);
  CarriedState carried;
  allocator(kCpu).reset_peak();
  const std::int64_t before = allocator(kCpu).stats().live_bytes;
  for (; options.step < 3; ++options.step)
    steps.losses.push_back(
        train_step(*model, *optimizer, batches_of_step(options.step), carried, options).loss);
  steps.peak = allocator(kCpu).stats().peak_bytes - before;
  steps.values = raw::contiguous(model->params().values()).to_vector<float>();
  return steps;
}

}  // namespace

TEST_CASE("recompute: steps with accumulated batches and micro-batches move every model to the same bits") {
  const OneThread one;
  for (const ModelEntry& entry : model_registry()) {
    const ModelConfig config = small(entry);
    CAPTURE(config.model);
    for (const std::int64_t micro_batches : {1, 2}) {
      CAPTURE(micro_batches);
      const Steps kept = steps_of(config, micro_batches, Recompute::none);
      for (const Recompute recompute : {Recompute::layer, Recompute::block}) {
        if (recompute == Recompute::block && !make_unallocated_model(config)->has_blocks()) continue;
        CAPTURE(static_cast<int>(recompute));
        const Steps again = steps_of(config, micro_batches, recompute);
        CHECK(again.values == kept.values);
        CHECK(again.losses == kept.losses);
      }
    }
  }
}

TEST_CASE("recompute: deep models take less memory") {
  const OneThread one;
  for (const ModelEntry& entry : model_registry()) {
    ModelConfig config = small(entry);
    if (config.model == "universal") continue;  // one layer
    CAPTURE(config.model);
    config.layers = 6;
    const std::int64_t kept = steps_of(config, 1, Recompute::none).peak,
                       by_layer = steps_of(config, 1, Recompute::layer).peak;
    CHECK(by_layer < kept);
    if (!make_unallocated_model(config)->has_blocks()) continue;
    CHECK(steps_of(config, 1, Recompute::block).peak <= by_layer + by_layer / 10);
  }
}

TEST_CASE(
    "recompute: a run gives the same checkpoint, and refuses what its model does not have before it begins") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest kept = tiny_run(folder, "kept"), again = tiny_run(folder, "again");
  for (TrainRequest* const request : {&kept, &again}) request->config.model.model = "block_forget";
  again.config.train.recompute = "block";
  CHECK(train_quietly(kept) == TrainEnd::finished);
  CHECK(train_quietly(again) == TrainEnd::finished);
  CHECK(bytes_of(latest_of(again.run_dir), "model.safetensors") ==
        bytes_of(latest_of(kept.run_dir), "model.safetensors"));
  TrainRequest bad = tiny_run(folder, "bad");
  bad.config.train.recompute = "block";
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(bad); }),
                 "unit_forget: train.recompute is \"block\""));
  CHECK(!std::filesystem::exists(bad.run_dir));
}
