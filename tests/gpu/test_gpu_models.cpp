// Models on the GPU: the golden cases through the code of `eddy dump`, and a model of every name against the
// CPU in f64: losses over some steps of training with the state carried on, every gradient, the next state.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/weights.h"
#include "tensor/files/safetensors.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/models/bf16_models.h"
#include "train/app/exchange/dump.h"
#include "train/config/run_config.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::gpu_test;

namespace {

namespace fs = std::filesystem;

// What f32 on the CPU is held to as well (tests/models/test_golden.cpp).
constexpr double kValue = 1e-4, kGradient = 1e-3, kFloor = 1e-7;

std::vector<fs::path> golden_cases() {
  std::set<fs::path> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(EDDY_SOURCE_DIR "/tests/golden"))
    if (entry.path().filename() == "config.json") found.insert(entry.path().parent_path());
  return {found.begin(), found.end()};
}

// One step of a model with its state: what came out, on the CPU.
struct Step {
  double loss;
  std::map<std::string, Tensor> gradients, state;
};

class DeviceTraining {
 public:
  DeviceTraining(const ModelConfig& config, const Model* same_as, Dtype dtype, Device device)
      : model_(make_model(config, dtype, device)), device_(device) {
    if (same_as == nullptr)
      model_->params().initialize(3);
    else
      load_parameters(model_->params(), parameter_map(same_as->params()), "the other device");
    TrainConfig train;
    train.weight_decay = 0.1;
    optimizer_ = make_optimizer(model_->params(), train);
  }

  Step step(std::uint64_t number, std::int64_t rows) {
    const Tensor tokens = test::bf16_tokens(rows, 17, model_->config().vocab, number);
    ForwardInput input;
    if (model_->config().dropout > 0) input.dropout = {true, 7, static_cast<std::int64_t>(number), nullptr};
    input.tokens = raw::to_device(raw::contiguous(raw::narrow(tokens, 1, 0, 16)), device_);
    input.state = state_;
    model_->params().zero_gradients();
    const ForwardOutput output = model_->forward(input);
    const Tensor loss =
        cross_entropy(output.logits, raw::to_device(raw::contiguous(raw::narrow(tokens, 1, 1, 16)), device_));
    Step result{loss.item(), {}, {}};
    backward(loss);
    for (const Parameter& parameter : model_->params().parameters())
      if (const Tensor gradient = grad(parameter.value); gradient.defined())
        result.gradients[parameter.name] = raw::copy(to_cpu(gradient));
    state_ = output.state.detach();
    for (const auto& [name, tensor] : state_) result.state[name] = raw::copy(to_cpu(tensor));
    static_cast<void>(optimizer_->step(1e-3));
    return result;
  }

  const Model& model() const { return *model_; }

 private:
  std::unique_ptr<Model> model_;
  Device device_;
  std::unique_ptr<Optimizer> optimizer_;
  State state_;
};

void check_same(const std::map<std::string, Tensor>& got, const std::map<std::string, Tensor>& want,
                double relative) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, expected] : want) {
    REQUIRE_MESSAGE(got.contains(name), name);
    test::check_close(name, got.at(name), expected, relative, kFloor);
  }
}

ModelConfig config_named(const std::string& model) {
  for (const ModelConfig& config : test::bf16_configs())
    if (config.model == model) return config;
  FAIL("no model is named ", model);
  return {};
}

// Three steps of `rows` sequences in f32 on the GPU beside the same in f64 on the CPU.
void check_training(const ModelConfig& config, std::int64_t rows) {
  CAPTURE(config.family);
  CAPTURE(config.model);
  CAPTURE(rows);
  DeviceTraining on_cpu(config, nullptr, Dtype::f64, kCpu),
      on_gpu(config, &on_cpu.model(), Dtype::f32, gpu());
  // Both begin with the weights rounded to f32.
  for (const Parameter& parameter : on_cpu.model().params().parameters())
    raw::copy_into(detach(parameter.value), raw::cast(raw::cast(parameter.value, Dtype::f32), Dtype::f64));
  for (std::uint64_t number = 0; number < 3; ++number) {
    CAPTURE(number);
    const Step want = on_cpu.step(number, rows), got = on_gpu.step(number, rows);
    // Adam divides gradients by their size: where one is near 0 its rounding moves a weight by up to the
    // rate, in any direction, and from the second step on losses differ by some 1e-4 of their size.
    CHECK(std::abs(got.loss - want.loss) <= (number == 0 ? 1e-5 : 1e-3) * want.loss);
    if (number > 0) continue;
    check_same(got.gradients, want.gradients, kGradient);
    check_same(got.state, want.state, kValue);
  }
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("every golden case agrees on the GPU in f32 in logits and loss and gradients and states") {
    const fs::path out =
        fs::temp_directory_path() / ("eddy-gpu-golden-" + std::to_string(getpid()) + ".safetensors");
    const std::vector<fs::path> cases = golden_cases();
    REQUIRE(cases.size() >= 3);
    for (const fs::path& folder : cases) {
      CAPTURE(folder.string());
      DumpOptions options;
      options.case_dir = folder.string();
      options.out = out.string();
      options.device = "cuda";
      options.precision = "f32";
      options.grads = true;
      dump(options);
      const std::map<std::string, Tensor> golden = load_safetensors((folder / "case.safetensors").string()),
                                          mine = load_safetensors(out.string());
      for (const auto& [name, expected] : golden) {
        const bool gradient = name.starts_with("grad.");
        if (name != "logits" && name != "loss" && !gradient && !name.starts_with("next_state.")) continue;
        REQUIRE_MESSAGE(mine.contains(name), name);
        if (is_floating(expected.dtype()))
          test::check_close(name, mine.at(name), expected, gradient ? kGradient : kValue, kFloor);
        else
          CHECK_MESSAGE(test::numbers(mine.at(name)) == test::numbers(expected), name);
      }
    }
    fs::remove(out);
  }

  TEST_CASE("training a model of every name on the GPU follows the CPU in losses and gradients and states") {
    for (const ModelConfig& config : test::bf16_configs()) check_training(config, 2);
    ModelConfig self = config_named("feedback");  // each token's keys beside those of the memory
    self.feedback_self = true;
    check_training(self, 2);
  }

  TEST_CASE("training a recurrence that keeps its state on the GPU follows the CPU") {
    for (const char* name : {"unit_forget", "block_forget", "block_accumulate"}) {
      ModelConfig keeps = config_named(name);
      keeps.keep_state = true;
      keeps.positions = false;
      check_training(keeps, 2);
    }
  }

  TEST_CASE("training a block recurrence with dropout on the GPU follows the CPU in losses and gradients") {
    // Blocks of 3 and a last one of 1: no row of probabilities is a whole number of four draws.
    for (const char* name : {"block_forget", "block_accumulate"})
      for (const std::int64_t rows : {2, 5}) {  // on the CPU fewer than 4 go by attention
        ModelConfig config = config_named(name);
        config.block = 3;
        config.heads = 1;
        config.dropout = 0.3;
        check_training(config, rows);
      }
  }
}
