// How many launches a training step needs, by kernel: that no work is done twice, and the table of copies in
// docs/gpu.md.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "cuda/core/launch.cuh"
#include "cuda/runtime/context.h"
#include "ops/attention/attention.h"
#include "ops/norm/layer_norm.h"
#include "ops/product/linear.h"
#include "tensor/base/error.h"
#include "tests/emulation/emulation.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/models/bf16_models.h"
#include "train/step/train_step.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::gpu_test;

namespace {

using Counts = std::map<std::string, std::int64_t>;

// Returns the launches of `work`, without those queued before it.
template <class Work>
Counts counted(Work&& work) {
  cuda::synchronize();
  const Counts before = emulation::launches();
  work();
  cuda::synchronize();
  Counts counts = emulation::launches();
  for (const auto& [kernel, count] : before) counts[kernel] -= count;
  return counts;
}

// Training steps of one kind, with a state if the model carries one.
class Steps {
 public:
  Steps(const ModelConfig& config, Dtype dtype, bool capture)
      : model_(make_model(config, dtype, gpu())), vocab_(config.vocab) {
    model_->params().initialize(3);
    optimizer_ = make_optimizer(model_->params(), {});
    recorder_.emplace(model_->params(), RecorderOptions{.wanted = capture});
  }
  Counts count() {
    const Tensor tokens = test::bf16_tokens(2, 17, vocab_, static_cast<std::uint64_t>(number_));
    std::vector<std::int32_t> inputs, targets;
    for (std::int64_t row = 0; row < 2; ++row)
      for (std::int64_t t = 0; t < 16; ++t) {
        inputs.push_back(static_cast<std::int32_t>(tokens.data<std::int64_t>()[row * 17 + t]));
        targets.push_back(static_cast<std::int32_t>(tokens.data<std::int64_t>()[row * 17 + t + 1]));
      }
    StepOptions options;
    options.learning_rate = 1e-3;
    options.step = number_++;
    options.carry_state = true;
    const std::vector<Batch> batches{make_batch(2, inputs, targets)};
    return counted(
        [&] { CHECK(train_step(*model_, *optimizer_, batches, carried_, options, &*recorder_).finite); });
  }
  std::size_t graphs() const { return recorder_->graphs(); }

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<Recorder> recorder_;
  CarriedState carried_;
  std::int64_t vocab_;
  std::int64_t number_ = 0;
};

struct Passes {
  Counts forward, backward;
};

std::int64_t sum(const Counts& counts) {
  std::int64_t all = 0;
  for (const auto& [kernel, count] : counts) all += count;
  return all;
}

// Returns the launches of a call over two rows of so many tokens, with gradients.
Passes launches_of_call(const ModelConfig& config, std::int64_t time, Dtype dtype = Dtype::f32) {
  const std::unique_ptr<Model> model = make_model(config, dtype, gpu());
  model->params().initialize(3);
  model->params().zero_gradients();
  ForwardInput input;
  input.tokens = to_gpu(test::bf16_tokens(2, time, config.vocab, 0));
  input.dropout = {config.dropout > 0, 3, 4, nullptr};
  Tensor logits;
  Passes passes;
  passes.forward = counted([&] { logits = model->forward(input).logits; });
  const Tensor dlogits = Tensor::full(logits.shape(), 1, dtype, gpu());
  passes.backward = counted([&] { backward(logits, dlogits); });
  return passes;
}

// Returns the launches of the fifth window, or chunk, of a call.
Passes launches_of_step(const ModelConfig& config, std::int64_t step) {
  Passes five = launches_of_call(config, 5 * step);
  const Passes four = launches_of_call(config, 4 * step);
  for (const auto& [kernel, count] : four.forward) five.forward[kernel] -= count;
  for (const auto& [kernel, count] : four.backward) five.backward[kernel] -= count;
  return five;
}

// Returns the launches, forward and backward, of a call of one layer with dropout over so many blocks: of one
// token each in unit_forget, else of four.
std::pair<std::int64_t, std::int64_t> launches_of_blocks(const std::string& name, std::int64_t blocks,
                                                         Dtype dtype = Dtype::f32) {
  ModelConfig config;
  config.family = "recurrent_transformer";
  config.model = name;
  config.vocab = 11;
  config.context = 20;
  config.dim = 32;
  config.heads = 2;
  config.mlp_dim = 64;
  config.layers = 1;
  config.block = name == "unit_forget" ? 1 : 4;
  config.dropout = 0.1;
  const Passes passes = launches_of_call(config, config.block * blocks, dtype);
  return {sum(passes.forward), sum(passes.backward)};
}

std::string text_of(const Counts& counts) {
  std::string text;
  for (const auto& [kernel, count] : counts)
    if (count != 0) text += kernel + " " + std::to_string(count) + ", ";
  return text;
}

std::int64_t at(const Counts& counts, const char* kernel) {
  const auto found = counts.find(kernel);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a replayed step in bf16 rounds the parameters once as a step that is not captured does") {
    ModelConfig config = test::bf16_configs()[3];
    Steps eager(config, Dtype::bf16, false), captured(config, Dtype::bf16, true);
    Counts want, got;
    for (int i = 0; i < 5; ++i) {
      want = eager.count();
      got = captured.count();
    }
    CHECK(captured.graphs() == 1);
    CHECK(at(got, "cast") == at(want, "cast"));
  }

  // Adam's kernel rounds what it writes. The one cast is that of the targets.
  TEST_CASE("a step in bf16 with Adam does not cast the parameters") {
    const ModelConfig config = test::bf16_configs()[3];
    CHECK(config.model == "regular");
    Steps steps(config, Dtype::bf16, false);
    for (int i = 0; i < 2; ++i) static_cast<void>(steps.count());
    const Counts counts = steps.count();
    CHECK(at(counts, "adam") == 1);
    CHECK(at(counts, "cast") == 1);
  }

  TEST_CASE("a training step launches the optimizer once for each range of parameters with gradients") {
    std::printf("\n%-18s %9s %7s %9s %6s %7s\n", "training step", "launches", "copies", "add_into", "casts",
                "fills");
    for (const ModelConfig& config : test::bf16_configs()) {
      if (config.model == "feedback" || config.model == "ladder") continue;  // slow here
      CAPTURE(config.model);
      Steps steps(config, Dtype::f32, false);
      static_cast<void>(steps.count());  // without a state
      const Counts counts = steps.count();
      // One launch for each range of the arena that has gradients: some parameters of these two have none.
      CHECK(at(counts, "adam") == (config.model == "memory_llama"      ? 3
                                   : config.model == "block_recurrent" ? 2
                                                                       : 1));
      const std::int64_t all = sum(counts) - at(counts, "product");
      std::printf("%-18s %9lld %7lld %9lld %6lld %7lld\n", config.model.c_str(), static_cast<long long>(all),
                  static_cast<long long>(at(counts, "copy") + at(counts, "copies")),
                  static_cast<long long>(at(counts, "add_into")), static_cast<long long>(at(counts, "cast")),
                  static_cast<long long>(at(counts, "fill")));
    }
    std::fflush(stdout);
  }

  TEST_CASE("the rows of every product of a training step in bf16 begin at multiples of 16 bytes") {
    // The gradient of feedback's sum over layers, whose factors are as many as the layers and the input.
    const std::string weighted_sum = "[3, 1] by [1, 32], row strides 1, 32, 32, into f32";
    for (ModelConfig config : test::bf16_configs()) {  // 11 classes
      config.block = config.chunk = config.states = 8;
      if (config.window > 0) config.window = 8;
      const Counts before = emulation::unaligned_products();
      Steps steps(config, Dtype::bf16, false);
      static_cast<void>(steps.count());
      for (const auto& [product, times] : emulation::unaligned_products())
        if (product != weighted_sum) CHECK_MESSAGE(before.contains(product), config.model << ": " << product);
    }
  }

  TEST_CASE("the fused block recurrences launch as much for any number of blocks") {
    std::printf("\n%-18s %16s\n", "", "a block: plain");
    for (const char* name : {"unit_forget", "block_forget", "block_accumulate"}) {
      set_gpu_kernels("plain");
      const auto four = launches_of_blocks(name, 4), five = launches_of_blocks(name, 5);
      std::printf("%-18s %9lld + %4lld\n", name, static_cast<long long>(five.first - four.first),
                  static_cast<long long>(five.second - four.second));
    }
    set_gpu_kernels("recurrence=fused");
    for (const char* name : {"block_forget", "block_accumulate"}) {
      const auto fused = launches_of_blocks(name, 4, Dtype::bf16);
      CHECK(launches_of_blocks(name, 5, Dtype::bf16) == fused);
      std::printf("%-18s %9lld + %4lld a call, fused\n", name, static_cast<long long>(fused.first),
                  static_cast<long long>(fused.second));
    }
    std::fflush(stdout);
  }

  TEST_CASE("a token of the unit recurrence launches four kernels forward and four backward by phases") {
    for (const char* kernels : {"unit_recurrence=plain", "unit_recurrence=phases"}) {
      set_gpu_kernels(kernels);
      const auto four = launches_of_blocks("unit_forget", 4, Dtype::bf16),
                 five = launches_of_blocks("unit_forget", 5, Dtype::bf16);
      const std::int64_t wanted = kernels == std::string("unit_recurrence=plain") ? 8 : 4;
      CHECK(five.first - four.first == wanted);
      CHECK(five.second - four.second == wanted);
    }
  }

  TEST_CASE("a linear layer with ReLU clips in its product and launches one kernel more for its gradient") {
    const Tensor x = require_grad(to_gpu(Tensor::full({6, 4}, 1))),
                 weight = require_grad(to_gpu(Tensor::full({8, 4}, 1))), bias = to_gpu(Tensor::zeros({8}));
    Tensor y;
    const Counts forward = counted([&] { y = linear(x, weight, bias, {.relu = true}); });
    CHECK(sum(forward) == 1);
    CHECK(at(forward, "product") == 1);
    const Tensor dy = Tensor::full({6, 8}, 1, Dtype::f32, gpu());
    const Counts back = counted([&] { backward(y, dy); });
    CHECK(at(back, "relu") == 1);
    CHECK(sum(back) - at(back, "product") == 1);
  }

  TEST_CASE("calls of attention that share positions add up their gradient once") {
    const auto positions = require_grad(to_gpu(Tensor::full({9, 4}, 1)));
    AttentionOptions options;
    options.causal = true;
    options.positions = positions;
    std::vector<Tensor> results, cotangents;
    for (int call = 0; call < 3; ++call) {
      const Tensor x = to_gpu(Tensor::full({2, 9, 2, 4}, 1));
      results.push_back(attention_bthd(x, x, x, options));
      cotangents.push_back(x);
    }
    const Counts back = counted([&] { backward(results, cotangents); });
    CHECK(at(back, "attention_tables") == 3);
    CHECK(at(back, "partial_sums") == 1);
    CHECK(sum(back) == 8);  // and three times deltas, and a fill
  }

  TEST_CASE("the sum for the bias of a layer with ReLU and ReLU's gradient are one launch") {
    const auto parameter = [](const Shape& shape) { return require_grad(to_gpu(Tensor::full(shape, 1))); };
    const Tensor x = parameter({130, 16}), up = parameter({32, 16}), up_bias = parameter({32}),
                 down = parameter({16, 32}), down_bias = parameter({16});
    const Tensor y = linear(linear(x, up, up_bias, {.relu = true}), down, down_bias),
                 dy = Tensor::full(y.shape(), 1, Dtype::f32, gpu());
    const Counts back = counted([&] { backward(y, dy); });
    CAPTURE(text_of(back));
    CHECK(at(back, "row_block_sums") == 2);
    CHECK(at(back, "partial_sums") == 2);
    CHECK(sum(back) == at(back, "product") + 4);
  }

  TEST_CASE("the norm behind a linear layer sums the gradient of that layer's bias on its way") {
    const auto tensor = [](const Shape& shape, Dtype dtype) { return to_gpu(Tensor::full(shape, 1, dtype)); };
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})  // the sum of a norm's kernel, and of a product
      for (const std::int64_t rows : {320, 640}) {       // with two kernels, and with one
        set_gpu_kernels("products=fused");
        const auto parameter = [&](const Shape& shape) { return require_grad(tensor(shape, Dtype::f32)); };
        const Tensor x = require_grad(tensor({rows, 16}, dtype)), weight = parameter({16, 16}),
                     bias = parameter({16}), gain = parameter({16}), dy = tensor({rows, 16}, dtype);
        const SumAndNorm y = add_layer_norm(x, LinearTerm{tensor({rows, 16}, dtype), weight, bias}, gain);
        const Counts back = counted([&] { backward({y.sum, y.norm}, {dy, dy}); });
        CAPTURE(text_of(back));
        CHECK(at(back, "row_block_sums") == (rows == 320 ? 1 : 0));
        CHECK(at(back, "partial_sums") == 2);
        set_gpu_kernels("plain");
      }
  }

  TEST_CASE("a window or a chunk of a chain launches as much as docs/gpu.md says") {
    struct Chain {
      const char *model, *gate, *cell;
      bool dropout;
      std::int64_t forward, backward;
    };
    const Chain chains[] = {{"block_recurrent", "fixed", "skip", false, 8, 22},
                            {"block_recurrent", "lstm", "skip", false, 8, 23},
                            {"block_recurrent", "fixed", "single", false, 9, 25},
                            {"block_recurrent", "lstm", "single", false, 9, 26},
                            {"block_recurrent", "fixed", "dual", false, 12, 30},
                            {"block_recurrent", "lstm", "dual", false, 12, 32},
                            {"memory_llama", "", "", false, 8, 19},
                            {"memory_llama", "", "", true, 9, 20}};
    for (const Chain& chain : chains) {
      ModelConfig config;
      for (const ModelConfig& found : test::bf16_configs())
        if (found.model == chain.model) config = found;
      config.context = config.segment = 20;
      if (*chain.gate) config.gate = chain.gate;
      if (*chain.cell) config.cell = chain.cell;
      if (chain.dropout) config.dropout = 0.1;
      if (config.model == "memory_llama") config.layers = 1;
      const Passes step = launches_of_step(config, 4);
      CAPTURE(chain.model);
      CAPTURE(chain.gate);
      CAPTURE(chain.cell);
      CAPTURE(text_of(step.forward));
      CAPTURE(text_of(step.backward));
      CHECK(sum(step.forward) == chain.forward);
      CHECK(sum(step.backward) == chain.backward);
    }
  }

  TEST_CASE("a grid of more blocks than a GPU takes is refused with a message") {
    struct Nothing {};
    CHECK_THROWS_WITH_AS(cuda::launch<Nothing>("mine", [](Nothing) {}, std::int64_t{1} << 31, 32, {}),
                         doctest::Contains("mine: a grid of 2147483648 blocks"), DeviceError);
  }
}
