// A parameter exists only where it can change the result: under drawn values of all switches every parameter
// gets a gradient, and what a setting leaves out is refused by the setting's name when a file holds it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "models/weights.h"
#include "tensor/base/error.h"
#include "tests/models/every_model.h"
#include "train/config/config.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using TensorMap = std::map<std::string, Tensor>;

// The first small configuration of a model with drawn values of all its switches: texts of a fixed list, and
// booleans. Any two values of two switches meet in 32 draws but for one pair in 10^4.
ModelConfig drawn_config(const ModelConfig& base, std::uint64_t draw) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    ModelConfig config = base;
    const RandomKey key = random_key(draw, ("test.switches." + config.model).c_str(), attempt);
    ConfigKeys keys = keys_of(config);
    std::uint64_t place = 0;
    for (const ConfigField& field : keys.fields()) {
      const std::uint32_t word = key.word(place++);
      if (field.key == "family" || field.key == "model") continue;
      if (bool* const* flag = std::get_if<bool*>(&field.target)) **flag = word % 2 == 0;
      if (std::string* const* text = std::get_if<std::string*>(&field.target);
          text != nullptr && !field.allowed.empty())
        **text = field.allowed[word % field.allowed.size()];
    }
    try {
      validate(config);
      return config;
    } catch (const ConfigError&) {
      if (attempt == 100) throw;
    }
  }
}

// The largest gradient of every parameter in calls from nothing, from a state, and with a row that begins
// anew.
std::map<std::string, double> largest_gradients(Model& model) {
  const ModelConfig& config = model.full_config();
  const std::int64_t time = uneven_time(config);
  const State carried = carried_state(model, 2);
  std::map<std::string, double> largest;
  for (const bool from_state : {false, true}) {
    if (from_state && carried.empty()) break;
    ForwardInput input;
    input.tokens = random_ids(2, time, config.vocab, 1);
    input.tail = rows_of(config, time);
    if (from_state) input.state = carried;
    if (from_state) input.start = starts_of(config, time);
    const Tensor targets = random_ids(2, rows_of(config, time), config.n_out, 2);
    for (const auto& [name, gradient] : run(model, input, targets).gradients)
      largest[name] = std::max(largest[name], gradient.defined() ? largest_magnitude(gradient) : 0);
  }
  return largest;
}

// A file's tensors: all of the model's, and one more of the given name.
TensorMap with(const ParamStore& params, const std::string& name, const Shape& shape) {
  TensorMap tensors = parameter_map(params);
  tensors.emplace(name, Tensor::full(shape, 1, Dtype::f64));
  return tensors;
}

}  // namespace

TEST_CASE("parameters: each one has influence under any values of the switches, or a reason for none") {
  const std::vector<ModelCase> cases = every_case();
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    const auto first = std::find_if(cases.begin(), cases.end(), [&](const ModelCase& one) {
      return one.config.family == entry.family && one.config.model == entry.model;
    });
    REQUIRE(first != cases.end());
    std::set<std::string> done;
    for (std::uint64_t draw = 0; draw < 32; ++draw) {
      const ModelConfig config = drawn_config(first->config, draw);
      const std::string text = to_json(resolved(config)).dump();
      if (!done.insert(text).second) continue;
      CAPTURE(text);
      for (const auto& [parameter, gradient] : largest_gradients(*model_of(config))) {
        CAPTURE(parameter);
        CHECK((gradient > 0) == without_influence(config, parameter).empty());
      }
    }
  }
}

TEST_CASE("parameters: a file with those that a setting leaves out is refused by the setting's name") {
  struct Left {
    ModelConfig config;
    std::string parameter, setting;
    Shape shape;
  };
  ModelConfig products = recurrent_config("fixed", "dual"), memorizing = block_recurrent_config("memorizing"),
              last = staircase_config("feedback");
  products.qk_norm = memorizing.memory_bias = false;
  last.feedback_memory = "last";
  ModelConfig tied = small_config("regular");
  tied.tied = true;
  std::vector<Left> all{
      {tied, "head.weight", "model.tied = true", {tied.vocab, tied.dim}},
      {memorizing, "layers.1.attn.rel_bias", "model.memory_bias = false", {2, 32}},
      {last, "feedback.layer_logits", "model.feedback_memory = \"last\"", {3}},
  };
  for (const char* scale : {"layers.0.attn.scale", "layers.1.cross.scale", "layers.1.recurrent.scale_self",
                            "layers.1.recurrent.scale_cross"})
    all.push_back({products, scale, "model.qk_norm = false", {2}});
  for (const Left& one : all) {
    CAPTURE(one.parameter);
    const auto model = model_of(one.config);
    CHECK(model->params().find(one.parameter) == nullptr);
    const Tensor before = raw::copy(model->params().values());
    const std::string problem = error_of<FormatError>([&] {
      load_parameters(model->params(), with(model->params(), one.parameter, one.shape), "old.safetensors");
    });
    CHECK(contains(problem, one.parameter + " " + to_string(one.shape) + " is not in the model"));
    CAPTURE(problem);
    CHECK(contains(problem, "(" + one.setting));
    CHECK(contains(problem, "out of the file"));
    CHECK(same_bits(model->params().values(), before));
  }
}

TEST_CASE("parameters: what a setting leaves out leaves the initial values of the others as they are") {
  ModelConfig config = recurrent_config("lstm", "dual");
  const auto with_scales = make_model(config, Dtype::f64);
  config.qk_norm = false;
  const auto without = make_model(config, Dtype::f64);
  with_scales->params().initialize(4);
  without->params().initialize(4);
  CHECK(with_scales->params().parameters().size() == without->params().parameters().size() + 6);
  for (const Parameter& parameter : without->params().parameters())
    CHECK_MESSAGE(same_bits(parameter.value, with_scales->params().get(parameter.name).value),
                  parameter.name);
}

TEST_CASE("feedback: a token that sees itself carries one row less, and a state with that row is refused") {
  for (const std::int64_t span : {1, 2, 5}) {
    CAPTURE(span);
    ModelConfig config = staircase_config("feedback");
    config.feedback_self = true;
    config.span = span;
    const auto model = model_of(config);
    const Tensor tokens = random_ids(2, 24, config.vocab, 1);
    const Tensor first = part(tokens, 0, 12), second = part(tokens, 12, 12);
    const Tensor whole = forward_of(*model, tokens).logits;
    const State state = forward_of(*model, first).state;
    CHECK(state.get("mem").shape() == Shape{2, span - 1, config.dim});
    check_close("logits", forward_of(*model, second, state).logits, part(whole, 12, 12), 1e-12);
    State stream;
    static_cast<void>(model->stream(first, stream));
    check_close("stream", model->stream(second, stream), part(whole, 12, 12), 1e-12);
    State old;
    old.set("mem", Tensor::zeros({2, span, config.dim}, Dtype::f64));
    for (const bool streaming : {false, true}) {
      const std::string problem = error_of<ShapeError>([&] {
        if (streaming)
          static_cast<void>(model->stream(second, old));
        else
          static_cast<void>(forward_of(*model, second, old));
      });
      CHECK(contains(problem, "model.feedback_self = true carries " + std::to_string(span - 1)));
    }
  }
}
