// Captured work and captured training steps: the bits of the same without capturing.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "cuda/runtime/context.h"
#include "models/eddy/registry.h"
#include "ops/core/capture.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/gpu/support/captured_training.h"
#include "tests/gpu/support/gpu_test.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::gpu_test;

namespace {

ModelConfig small(const std::string& family, const std::string& name) {
  ModelConfig config;
  config.family = family;
  config.model = name;
  config.vocab = 11;
  config.context = 12;
  config.dim = 16;
  config.heads = 2;
  config.layers = 2;
  config.init_std = 0.3;
  return config;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("captured work computes nothing until it is replayed and then from what lies at its inputs") {
    const Tensor x = to_gpu(Tensor::full({1000}, 1.0)), table = Tensor::full({1000}, 10.0);
    Tensor y;
    const auto compute = [&] { y = (x * 2.0 + x) * x + to_gpu(table); };
    compute();  // the first launch of a kernel loads it, which has no place in a graph
    const Tensor before = y;
    const auto work = capture(gpu(), compute);
    raw::fill(table, 0);  // the table was kept as it was
    CHECK(floats(before)[999] == 13);
    CHECK(y.raw_data() != before.raw_data());
    for (const float value : {1.0f, 3.0f, 5.0f}) {
      raw::fill(x, static_cast<double>(value));
      poison_gpu();
      work->replay();
      poison_gpu();
      CHECK(floats(y) == std::vector<float>(1000, 3 * value * value + 10));
    }
  }

  TEST_CASE("a value read while work is captured is refused and nothing is left of it") {
    const Tensor x = to_gpu(Tensor::full({4}, 2.0));
    CHECK(floats(x * x + x) == std::vector<float>(4, 6));
    std::string text;
    try {
      static_cast<void>(capture(gpu(), [&] { static_cast<void>((x * x).to_vector<float>()); }));
    } catch (const DeviceError& error) {
      text = error.what();
    }
    CHECK(text.find("a value is read from the GPU while work is being captured") != std::string::npos);
    CHECK(!capturing());
    CHECK(floats(x * x) == std::vector<float>(4, 4));
    Tensor y;
    const auto work = capture(gpu(), [&] { y = x + x; });
    work->replay();
    CHECK(floats(y) == std::vector<float>(4, 4));
  }

  TEST_CASE("what goes wrong inside captured work comes out and the device goes on") {
    CHECK_THROWS_AS(static_cast<void>(capture(gpu(), [] { throw ValueError("mine"); })), ValueError);
    CHECK_THROWS_AS(static_cast<void>(capture(gpu(), [] { static_cast<void>(capture(gpu(), [] {})); })),
                    DeviceError);
    CHECK(floats(to_gpu(Tensor::full({2}, 3.0)) * 2.0) == std::vector<float>(2, 6));
  }

  TEST_CASE("captured work keeps its memory and gives it back when the last of it is gone") {
    Allocator& memory = allocator(gpu());
    memory.trim();
    const std::int64_t before = memory.stats().reserved_bytes;
    const Tensor x = Tensor::full({1 << 20}, 1.0, Dtype::f32, gpu());
    Tensor y;
    CHECK(floats((x + x) * x)[0] == 2);
    auto first = capture(gpu(), [&] { y = (x + x) * x; });
    Tensor z;
    auto second = capture(gpu(), [&] { z = (x + x) + x; });
    CHECK(y.raw_data() != z.raw_data());
    first->replay();
    second->replay();
    memory.trim();
    first->replay();
    CHECK(floats(y)[12345] == 2);
    CHECK(floats(z)[12345] == 3);
    first.reset();
    memory.trim();
    second->replay();
    CHECK(floats(z)[777] == 3);
    second.reset();
    y = z = Tensor();
    memory.trim();
    CHECK(memory.stats().reserved_bytes <= before + (std::int64_t{32} << 20));  // that of x
  }

  TEST_CASE("the GPU is not closed while captured work is alive") {
    const Tensor x = to_gpu(Tensor::full({4}, 2.0));
    CHECK(floats(x + x)[0] == 4);
    Tensor y;
    const auto work = capture(gpu(), [&] { y = x + x; });
    CHECK_THROWS_WITH_AS(cuda::close(), doctest::Contains("captured work is alive: 1 (drop it first)"),
                         DeviceError);
    work->replay();
    CHECK(floats(y)[3] == 4);
  }

  TEST_CASE("a limit of memory counts the tensors of captured work and the others together") {
    constexpr std::int64_t kElements = 1 << 20, kHalf = kElements * 4 / 2;
    Allocator& memory = allocator(gpu());
    const Tensor x = Tensor::full({kElements}, 1.0, Dtype::f32, gpu());
    Tensor y;
    const auto make = [&] { y = Tensor::full({kElements}, 1.0, Dtype::f32, gpu()); };
    const auto work = capture(gpu(), make);
    memory.set_limit(memory.stats().live_bytes + kHalf);
    CHECK_THROWS_AS(Tensor::empty({kElements}, Dtype::f32, gpu()), OutOfMemoryError);
    CHECK_THROWS_AS(static_cast<void>(capture(gpu(),
                                              [&] {
                                                const Tensor kept = y;
                                                make();
                                              })),
                    OutOfMemoryError);
    memory.set_limit(0);
    CHECK_NOTHROW(Tensor::empty({kElements}, Dtype::f32, gpu()));
  }

  TEST_CASE("captured steps of a model with many classes are those without capturing") {
    ModelConfig config = small("recurrent_transformer", "unit_forget");
    config.vocab = kManyClasses;
    const Compared result = compare(config, "adamw", false, 5, [](int step) {
      return std::vector<Batch>{batch_of(3, static_cast<std::uint64_t>(2 * step)),
                                batch_of(3, static_cast<std::uint64_t>(2 * step + 1))};
    });
    CHECK(result.graphs == 1);
  }

  TEST_CASE("captured steps of the unit recurrence with dropout are those without capturing") {
    ModelConfig config = small("recurrent_transformer", "unit_forget");
    config.dropout = 0.2;
    const Compared result = compare(config, "adamw", false, 6, [](int step) {
      return std::vector<Batch>{batch_of(12, static_cast<std::uint64_t>(2 * step)),
                                batch_of(12, static_cast<std::uint64_t>(2 * step + 1))};
    });
    CHECK(result.graphs == 1);
  }

  TEST_CASE("captured steps with Adafactor are those without capturing") {
    ModelConfig config = small("recurrent_transformer", "regular");
    config.dropout = 0.1;
    config.dim = 128;  // so that some matrices are factored
    const Compared result = compare(config, "adafactor", false, 5, [](int step) {
      return std::vector<Batch>{batch_of(6, static_cast<std::uint64_t>(step))};
    });
    CHECK(result.graphs == 1);
  }

  TEST_CASE("captured steps with Muon are those without capturing") {
    const Compared result =
        compare(small("recurrent_transformer", "regular"), "muon", false, 5,
                [](int step) { return std::vector<Batch>{batch_of(6, static_cast<std::uint64_t>(step))}; });
    CHECK(result.graphs == 1);
  }

  // In odd steps one row begins anew, the one or the other by turns; in the sixth step both, a cold start.
  constexpr int kSteps = 10;
  std::vector<std::int64_t> beginning(int step) {
    if (step == 6) return {1, 1};
    if (step % 2 == 0) return {};
    return step % 4 == 1 ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{1, 0};
  }

  TEST_CASE("captured steps carry a state on and rows begin anew in them") {
    for (const char* name : {"transformer_xl", "lstm"}) {
      CAPTURE(name);
      ModelConfig config = small("staircase", name);
      config.segment = 6;
      config.chunk = 3;
      config.dropout = 0.2;
      const Compared result = compare(config, "adam", true, kSteps, [](int step) {
        return std::vector<Batch>{batch_of(6, static_cast<std::uint64_t>(step), beginning(step))};
      });
      CHECK(result.graphs == 2);
    }
  }

  TEST_CASE("captured steps of the block-recurrent transformer carry its states on and rows begin anew") {
    ModelConfig config = small("block_recurrent", "block_recurrent");
    config.segment = 8;
    config.window = 4;
    config.states = 3;
    config.recurrent_layers = {0};
    config.dropout = config.attn_dropout = 0.2;
    const Compared result = compare(config, "adamw", true, kSteps, [](int step) {
      return std::vector<Batch>{batch_of(8, static_cast<std::uint64_t>(step), beginning(step))};
    });
    CHECK(result.graphs == 2);
  }

  TEST_CASE("captured steps of the memorizing transformer fill its memory and rows begin with an empty one") {
    ModelConfig config = small("block_recurrent", "memorizing");
    config.segment = config.context = 8;
    config.window = 4;
    config.memory_layers = {1};
    config.memory_size = 24;  // full after three steps, so that most steps write over the oldest entries
    config.memory_topk = 5;
    config.dropout = config.attn_dropout = 0.2;
    for (const char* search : {"bucket", "exact"}) {
      CAPTURE(search);
      config.memory_search = search;
      const Compared result = compare(config, "adamw", true, kSteps, [](int step) {
        return std::vector<Batch>{batch_of(8, static_cast<std::uint64_t>(step), beginning(step))};
      });
      CHECK(result.graphs == 2);
    }
  }

  TEST_CASE("captured steps of memory attention carry the memory on") {
    ModelConfig config = small("blockwise_recurrent", "memory_llama");
    config.segment = 8;
    config.context = 8;
    config.chunk = 4;
    config.dropout = 0.2;
    const Compared result = compare(config, "adamw", true, kSteps, [](int step) {
      return std::vector<Batch>{batch_of(8, static_cast<std::uint64_t>(step), beginning(step))};
    });
    CHECK(result.graphs == 2);
  }

  TEST_CASE("captured steps in bf16 are those without capturing") {
    ModelConfig config = small("recurrent_transformer", "regular");
    config.dropout = 0.1;
    const Compared result = compare(
        config, "adamw", false, 6,
        [](int step) { return std::vector<Batch>{batch_of(12, static_cast<std::uint64_t>(step))}; },
        Dtype::bf16);
    CHECK(result.graphs == 1);
  }

  TEST_CASE("a change of the block size or of the length takes a graph of its own") {
    ModelConfig config = small("recurrent_transformer", "block_forget");
    const Compared result = compare(config, "adamw", false, 9, [](int step) {
      Batch batch = batch_of(step % 3 == 2 ? 8 : 12, static_cast<std::uint64_t>(step));
      batch.block = step % 3 == 0 ? 4 : 2;
      return std::vector<Batch>{batch};
    });
    CHECK(result.graphs == 3);
  }

  TEST_CASE("a captured step whose loss is not finite moves nothing and clears the state") {
    ModelConfig config = small("staircase", "lstm");
    config.segment = 6;
    Training training(config, "adamw", true);
    const auto step = [&](int i) {
      return training.step({batch_of(6, static_cast<std::uint64_t>(i))}, options_of(i, true));
    };
    for (int i = 0; i < 5; ++i) CHECK(step(i).finite);
    CHECK(training.recorder->graphs() == 1);
    const std::vector<float> values = floats(training.model->params().values());
    const std::map<std::string, Tensor> kept = training.optimizer->save();
    std::map<std::string, std::vector<float>> moments;
    for (const auto& [name, tensor] : kept)
      if (tensor.dtype() == Dtype::f32) moments[name] = floats(tensor);
    raw::fill(training.carried.state.begin()->second, std::numeric_limits<double>::quiet_NaN());
    const StepResult bad = step(5);
    CHECK(!bad.finite);
    CHECK(bad.problem.find("the loss is not finite; the carried state") != std::string::npos);
    CHECK(training.carried.state.empty());
    CHECK(training.optimizer->steps() == 5);
    CHECK(floats(training.model->params().values()) == values);
    for (const auto& [name, tensor] : training.optimizer->save())
      if (tensor.dtype() == Dtype::f32) CHECK(floats(tensor) == moments.at(name));
    for (int i = 6; i < 9; ++i) CHECK(step(i).finite);
    CHECK(training.optimizer->steps() == 8);
  }

  TEST_CASE("more kinds of steps than graphs give one warning and run uncaptured") {
    const ModelConfig config = small("recurrent_transformer", "regular");
    Training training(config, "adam", true);
    training.recorder.emplace(training.model->params(), RecorderOptions{.graphs = 4});
    int step = 0;
    for (int round = 0; round < 3; ++round)
      for (std::int64_t time = 1; time <= 6; ++time, ++step)
        CHECK(training.step({batch_of(time, static_cast<std::uint64_t>(step))}, options_of(step, false))
                  .finite);
    CHECK(training.recorder->graphs() == 4);
    CHECK(training.recorder->take_message().find("kinds") != std::string::npos);
    CHECK(training.recorder->take_message() == "");
  }
}
