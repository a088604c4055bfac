// What the family says of its state: gates, spread, and the state without recurrence.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/eddy/registry.h"

namespace {

using namespace eddy;

ModelConfig small(const std::string& gate, const std::string& cell) {
  ModelConfig config;
  config.family = config.model = "block_recurrent";
  config.vocab = 11;
  config.dim = 6;
  config.heads = 2;
  config.layers = 3;
  config.mlp_dim = 8;
  config.segment = 8;
  config.window = 4;
  config.states = 5;
  config.recurrent_layers = {1};
  config.gate = gate;
  config.cell = cell;
  return config;
}

std::unique_ptr<Model> made(const ModelConfig& config) {
  std::unique_ptr<Model> model = make_model(config, Dtype::f64);
  model->params().initialize(4);
  return model;
}

ForwardOutput run(const Model& model, const State& state, std::int64_t batch = 2) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < batch * 8; ++i) ids.push_back(static_cast<std::int32_t>((i * i + 3) % 11));
  ForwardInput input;
  input.tokens = Tensor::from(ids, {batch, 8});
  input.state = state;
  return model.forward(input);
}

double mean_sigmoid(const Model& model, const std::string& name, double shift) {
  for (const Parameter& parameter : model.params().parameters()) {
    if (parameter.name != name) continue;
    double sum = 0;
    const std::vector<double> values = raw::contiguous(parameter.value).to_vector<double>();
    for (const double b : values) sum += 1 / (1 + std::exp(-b - shift));
    return sum / static_cast<double>(values.size());
  }
  return std::nan("");
}

double number(const std::vector<std::pair<std::string, double>>& numbers, const std::string& name) {
  for (const auto& [key, value] : numbers)
    if (key == name) return value;
  return std::nan("");
}

bool same(const State& a, const State& b, const std::string& name) {
  return raw::contiguous(a.get(name)).to_vector<double>() == raw::contiguous(b.get(name)).to_vector<double>();
}

}  // namespace

TEST_CASE("block recurrent: the gate's number is the mean of what it keeps at rest") {
  const std::string gate = "layers.1.recurrent.gate_";
  for (const std::string kind : {"fixed", "lstm"})
    for (const std::string cell : {"skip", "single", "dual"}) {
      CAPTURE(kind);
      CAPTURE(cell);
      const auto model = made(small(kind, cell));
      const std::string bias = kind == "fixed" ? ".bg" : ".bf";
      const double shift = kind == "fixed" ? 0 : 1;
      const double attn = mean_sigmoid(*model, gate + "attn" + bias, shift),
                   mlp = mean_sigmoid(*model, gate + "mlp" + bias, shift);
      const double expected = cell == "skip" ? attn : cell == "single" ? mlp : (attn + mlp) / 2;
      CHECK(std::abs(number(model->diagnostics({}), "state_gate") - expected) <= 1e-14);
    }
}

TEST_CASE("block recurrent: the spread is the mean deviation between state vectors") {
  const auto model = made(small("fixed", "skip"));
  State state;
  // Channel 0 has the values 0 .. 4 in the first sequence: deviation sqrt(2). All else is equal.
  std::vector<double> values(2 * 5 * 6, 7.0);
  for (std::size_t s = 0; s < 5; ++s) values[s * 6] = static_cast<double>(s);
  state.set("layers.1.state", Tensor::from(values, {2, 5, 6}));
  CHECK(std::abs(number(model->diagnostics(state), "state_spread") - std::sqrt(2.0) / 12) <= 1e-14);
  CHECK(std::isnan(number(model->diagnostics({}), "state_spread")));
  ModelConfig two = small("fixed", "skip");
  two.recurrent_layers = {0, 2};
  const auto both = made(two);
  const auto numbers = both->diagnostics(run(*both, {}).state);
  CHECK(numbers.size() == 4);
  CHECK(number(numbers, "state_spread_2") > 0);
  ModelConfig slide = small("fixed", "skip");
  slide.model = "slide";
  slide.recurrent_layers.clear();
  CHECK(made(slide)->diagnostics({}).empty());
}

TEST_CASE("block recurrent: without recurrence the states begin anew and cached keys stay") {
  const auto model = made(small("lstm", "dual"));
  const State state = run(*model, {}).state;
  const State cleared = model->without_recurrence(state);
  for (const char* layer : {"layers.0", "layers.1", "layers.2"})
    for (const char* part : {".k", ".v"}) CHECK(same(cleared, state, std::string(layer) + part));
  CHECK(!same(cleared, state, "layers.1.state"));
  CHECK(cleared.size() == state.size());
  // A model that clears its state by itself at every segment goes on as one that is cleared from outside.
  ModelConfig clearing = small("lstm", "dual");
  clearing.clear_state = true;
  const auto by_itself = made(clearing);
  const std::vector<double> a = raw::contiguous(run(*model, cleared).logits).to_vector<double>(),
                            b = raw::contiguous(run(*by_itself, state).logits).to_vector<double>(),
                            c = raw::contiguous(run(*model, state).logits).to_vector<double>();
  CHECK(a == b);
  CHECK(a != c);
  CHECK(model->without_recurrence({}).empty());
}

TEST_CASE("block recurrent: without recurrence a memory is empty and a plain cache is gone") {
  ModelConfig config = small("fixed", "skip");
  config.model = "slide";
  config.recurrent_layers.clear();
  const auto slide = made(config);
  CHECK(slide->without_recurrence(run(*slide, {}).state).empty());
  config.model = "memorizing";
  config.memory_layers = {1};
  config.memory_size = 16;
  config.memory_topk = 4;
  const auto memorizing = made(config);
  const State state = run(*memorizing, {}).state, cleared = memorizing->without_recurrence(state);
  CHECK(same(cleared, state, "layers.1.k"));
  CHECK(state.get("layers.1.mem_count").to_vector<std::int64_t>() == std::vector<std::int64_t>{8, 8});
  CHECK(cleared.get("layers.1.mem_count").to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0});
}
