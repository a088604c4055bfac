// Captured training steps of a model of every name, with the state carried on where there is one: the bits of
// the same steps uncaptured.
#include <doctest/doctest.h>

#include "tests/gpu/support/captured_training.h"
#include "tests/models/bf16_models.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::gpu_test;

namespace {

// A call has one segment, of two windows, chunks or blocks.
constexpr std::int64_t kTime = 8;

// With a state the first step has a signature of its own; the fourth is then recorded.
constexpr int kSteps = kEmulated ? 6 : 10;

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("captured steps of a model of every name are those without capturing") {
    for (ModelConfig config : test::bf16_configs()) {
      CAPTURE(config.model);
      CAPTURE(config.gate);
      config.init_std = 0.3;
      config.dropout = 0.1;
      const Compared result = compare(config, "adamw", true, kSteps, [](int step) {
        return std::vector<Batch>{batch_of(kTime, static_cast<std::uint64_t>(step))};
      });
      CHECK(result.graphs >= 1);
      CHECK(result.losses.back() != result.losses.front());
      // Only these begin anew with every batch.
      const bool stateless = config.family == "recurrent_transformer" || config.model.starts_with("llama") ||
                             config.model == "vanilla";
      CHECK(result.state != stateless);
    }
  }

  TEST_CASE("captured steps that compute activations again are those that keep them") {
    for (ModelConfig config : test::bf16_configs()) {
      CAPTURE(config.model);
      CAPTURE(config.gate);
      config.init_std = 0.3;
      config.dropout = 0.1;
      const Recompute most =
          make_unallocated_model(config)->has_blocks() ? Recompute::block : Recompute::layer;
      const Compared result = compare(
          config, "adamw", true, kSteps,
          [](int step) { return std::vector<Batch>{batch_of(kTime, static_cast<std::uint64_t>(step))}; },
          Dtype::f32, most);
      CHECK(result.graphs >= 1);
    }
  }
}
