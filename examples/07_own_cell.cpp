// Example 7: a model and a task of one's own in Eddy's trainer. This program is `eddy` with one cell and one task more:
//
//   example_07_own_cell train --model minimal_gate --data.name since_one --run runs/own
//   example_07_own_cell reproduce examples/07_own_cell.toml           against unit recurrence and LSTM
//   example_07_own_cell                                               checks itself, in seconds
//
// The cell is the minimal gated unit (G. Zhou et al., "Minimal gated unit for recurrent neural networks", 2016): one
// gate for each number of the state h.
//
//   g  = sigmoid(W_g x + U_g h + b)
//   h' = h + g (tanh(W_c x + U_c (g h)) - h)
//
// All that Eddy needs of it: its keys, a class with its parameters and `forward`, and a line in main. Configuration
// files, flags, help, checkpoints, exact resumption, generation, evaluation, the report and tables follow from these.
// docs/own-models.md says what else a model may say.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "models/layers.h"
#include "ops/ops.h"
#include "ops/product/packed_weights.h"
#include "tensor/base/error.h"
#include "train/app/program/program.h"
#include "train/run/checkpoint.h"
#include "train/tasks/synthetic/synthetic_task.h"

namespace own {

using namespace eddy;
using namespace eddy::training;

// ---- the model

// Its keys, beside the common ones (models/config.h).
struct Keys {
  double gate_start = -1;
  friend bool operator==(const Keys&, const Keys&) = default;
};
void describe(KeyList& keys, Keys& c) {
  keys.add("gate_start", c.gate_start,
           "Initial bias of the gates; below 0 a new cell keeps more than it takes")
      .common();
}

class MinimalGate final : public FamilyModel<Keys> {
 public:
  MinimalGate(const Config& c, const ParamScope& scope)
      : FamilyModel(c),
        embed_(scope.scope("embed"), c.vocab, c.dim, 1.0),
        head_(scope.scope("head"), c.dim, c.n_out, c.init_std, true) {
    for (std::int64_t i = 0; i < c.layers; ++i) {
      const ParamScope layer = scope.scope("layers").scope(i);
      const Init random = Init::uniform(1 / std::sqrt(static_cast<double>(c.dim)));
      layers_.push_back({{layer.scope("w_gate"), c.dim, c.dim, random, Init::normal(0.1, c.gate_start)},
                         {layer.scope("w_new"), c.dim, c.dim, random, Init::zeros()},
                         {layer.scope("u_gate"), c.dim, c.dim, random},
                         {layer.scope("u_new"), c.dim, c.dim, random}});
    }
  }

  bool is_recurrent() const override { return true; }

  ForwardOutput forward(const ForwardInput& input) const override {
    check_tokens(input.tokens);
    const std::int64_t batch = input.tokens.dim(0), time = input.tokens.dim(1);
    const StateLayout layout = state_layout(batch);
    if (!input.state.empty()) check_state(input.state, layout);
    check_start(input.start, batch, 1);
    const State before = input.state.empty() ? zeros_of(layout) : input.state;
    const Tensor begins = start_flags(input.start, 0);  // the rows that begin with a new state
    const DropoutSite drop{input.dropout, config().dropout};
    const PackedWeightScope packed(time);
    State after;
    Tensor x = embed_(raw::copy(raw::transpose(input.tokens, 0, 1)));  // time-major
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const ScopeGuard scope(layout[i].name.substr(0, layout[i].name.rfind('.')));  // layers.N
      const Layer& layer = layers_[i];
      Tensor h = detach(before.get(layout[i].name));
      if (begins.defined()) h = restart_rows(h, zeros_of(layout).get(layout[i].name), begins);
      const Tensor gates = layer.w_gate(x), news = layer.w_new(x);  // of all tokens at once
      std::vector<Tensor> steps;
      for (std::int64_t t = 0; t < time; ++t) {
        const Tensor gate = sigmoid(select(gates, 0, t) + layer.u_gate(h));
        h = h + gate * (tanh(select(news, 0, t) + layer.u_new(gate * h)) - h);
        name_value("gate", gate);
        steps.push_back(h);
      }
      after.set(layout[i].name, raw::copy(detach(h)));
      x = drop(stack(steps), layout[i].name + ".drop");
    }
    return {input, {x, head_.weight, head_.bias, true}, after};
  }

 private:
  struct Layer {
    Linear w_gate, w_new, u_gate, u_new;
  };
  StateLayout state_layout(std::int64_t batch) const {
    StateLayout layout;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      layout.push_back({.name = "layers." + std::to_string(i) + ".state", .shape = {batch, config().dim}});
    return layout;
  }

  Embedding embed_;
  Linear head_;
  std::vector<Layer> layers_;
};

// ---- the task: how many bits ago the last one was

struct TaskKeys {
  std::int64_t farthest = 7;
  friend bool operator==(const TaskKeys&, const TaskKeys&) = default;
};
void describe(KeyList& keys, TaskKeys& c) {
  keys.add("farthest", c.farthest, "The largest answer; it also stands for all that are larger", {1, 1000});
}

class SinceOne final : public SyntheticTask {
 public:
  using SyntheticTask::SyntheticTask;

  std::string name() const override { return "since_one"; }
  std::string summary() const override { return "streams of random bits"; }
  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, 2, farthest() + 1, "since_one has 2 tokens, and answers from 0 to data.farthest",
               "each bit has an answer");
  }

 private:
  std::int64_t farthest() const { return config().data.extensions.get<TaskKeys>().farthest; }
  Batch draw(const RandomKey& key, std::int64_t rows) const override {
    std::vector<std::int32_t> tokens, answers;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t since = farthest();
      for (std::int64_t t = 0; t < row_length(); ++t) {
        const std::uint32_t word = key.word(static_cast<std::uint64_t>(row * row_length() + t));
        tokens.push_back(word >> 30 == 0 ? 1 : 0);  // a quarter are ones
        since = tokens.back() == 1 ? 0 : std::min(since + 1, farthest());
        answers.push_back(static_cast<std::int32_t>(since));
      }
    }
    return make_batch(rows, std::move(tokens), std::move(answers));
  }
};

std::unique_ptr<Task> since_one(TaskArguments&& arguments) {
  return std::make_unique<SinceOne>(arguments.config);
}

// ---- the check: trains, resumes and measures through the command line

int run(std::vector<std::string> words) {
  words.insert(words.begin(), "example_07_own_cell");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return app::program(static_cast<int>(argv.size()), argv.data());
}

int check_itself() {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("own_cell-" + std::to_string(::getpid()));
  const std::string whole = (folder / "whole").string(), halves = (folder / "halves").string();
  const auto train = [](const std::string& where, const char* steps) {
    return run({"train",
                "--run",
                where,
                "--model",
                "minimal_gate",
                "--model.dim",
                "32",
                "--model.context",
                "16",
                "--model.gate_start",
                "-0.5",
                "--data.name",
                "since_one",
                "--data.farthest",
                "5",
                "--train.steps",
                steps,
                "--train.batch",
                "32",
                "--train.learning_rate",
                "0.01",
                "--train.eval_every",
                "100"});
  };
  bool good = train(whole, "200") == 0 && train(halves, "90") == 0 &&
              run({"train", "--resume", halves, "--train.steps", "200"}) == 0;
  if (good) {
    const LoadedRun a = load_run(whole), b = load_run(halves);
    good = a.model->params().values().to_vector<float>() == b.model->params().values().to_vector<float>();
    std::printf("a run in two parts has %s bits of one\n", good ? "the" : "OTHER");
    const bool learned = a.state.best_loss < 0.05;
    std::printf("validation loss %.4f: %s\n", a.state.best_loss, learned ? "learned" : "NOT LEARNED");
    good = good && learned && run({"eval", whole}) == 0;
  }
  fs::remove_all(folder);
  return good ? 0 : 1;
}

}  // namespace own

int main(int argc, char** argv) try {
  eddy::register_model<own::MinimalGate>({"own_cells", "minimal_gate"}, "a cell with one gate",
                                         {.common = "-heads -mlp_dim -norm_eps init_std"});
  eddy::training::register_task<own::TaskKeys>(
      {"since_one", "how many bits ago the last one was", own::since_one});
  return argc > 1 ? eddy::app::program(argc, argv) : own::check_itself();
} catch (const eddy::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
