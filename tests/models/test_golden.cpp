// Parity with the golden cases in tests/golden (see its README): what `eddy dump` writes for a case is
// compared, tensor by tensor, with what an independent f64 implementation of the specification got. The
// second forms of a model (literal windows, streaming) are held against the same numbers.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "models/weights.h"
#include "tensor/files/safetensors.h"
#include "tests/models/every_model.h"
#include "train/app/exchange/dump.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;
using TensorMap = std::map<std::string, Tensor>;

// A tensor agrees when max|mine - golden| <= relative max|golden| + floor: the rule the cases were published
// with.
struct Tolerance {
  double value, gradient, floor;
};
constexpr Tolerance kF64{1e-9, 1e-9, 1e-12};
constexpr Tolerance kF32{1e-4, 1e-3, 1e-7}, kF32RecurrentTransformer{1e-4, 1e-4, 1e-7};

bool registered(const ModelConfig& config) {
  return std::any_of(model_registry().begin(), model_registry().end(), [&](const ModelEntry& entry) {
    return entry.family == config.family && entry.model == config.model;
  });
}

// The folders of all cases whose model this build has, in the order of their names.
std::vector<fs::path> cases() {
  std::set<fs::path> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(EDDY_SOURCE_DIR "/tests/golden")) {
    if (entry.path().filename() != "config.json") continue;
    const ModelConfig config = load_run_config(entry.path().string()).model;
    if (registered(config))
      found.insert(entry.path().parent_path());
    else
      MESSAGE("no such model in this build: " << entry.path().parent_path().string());
  }
  return {found.begin(), found.end()};
}

bool is_expected(const std::string& name) {
  return name == "logits" || name == "loss" || name.starts_with("grad.") || name.starts_with("next_state.");
}

std::set<std::string> names_of(const TensorMap& tensors, bool (*keep)(const std::string&)) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors)
    if (keep(name)) names.insert(name);
  return names;
}

void check_dump(const fs::path& folder, const std::string& precision, const Tolerance& tolerance) {
  const fs::path out =
      fs::temp_directory_path() / ("eddy-golden-" + std::to_string(getpid()) + ".safetensors");
  DumpOptions options;
  options.case_dir = folder.string();
  options.out = out.string();
  options.precision = precision;
  options.grads = true;
  dump(options);
  const TensorMap golden = load_safetensors((folder / "case.safetensors").string()),
                  mine = load_safetensors(out.string());
  fs::remove(out);

  const auto all = [](const std::string&) { return true; };
  CHECK(names_of(mine, all) == names_of(golden, is_expected));
  for (const auto& [name, expected] : golden) {
    if (!is_expected(name) || !mine.contains(name)) continue;
    const Tensor& got = mine.at(name);
    if (is_floating(expected.dtype())) {
      CHECK(got.dtype() == (precision == "f64" ? Dtype::f64 : Dtype::f32));
      check_close(name, got, expected, name.starts_with("grad.") ? tolerance.gradient : tolerance.value,
                  tolerance.floor);
    } else {
      CHECK_MESSAGE(numbers(got) == numbers(expected), name);
    }
  }
}

// A case's model with its parameters, f64.
std::unique_ptr<Model> model_of(const fs::path& folder, const TensorMap& golden) {
  auto model = make_model(load_run_config((folder / "config.json").string()).model, Dtype::f64);
  TensorMap weights;
  for (const auto& [name, tensor] : golden)
    if (name.starts_with("param.")) weights.emplace(name.substr(6), tensor);
  load_parameters(model->params(), weights, folder.string());
  return model;
}

}  // namespace

TEST_CASE("golden: the cases of the registered models are in the tree") {
  CHECK(cases().size() >= 27);
}

TEST_CASE("golden: every registered model has a case or a place in its streams") {
  std::set<std::string> with_case;
  for (const fs::path& folder : cases())
    with_case.insert(load_run_config((folder / "config.json").string()).model.model);
  for (const ModelName& name : model_registry())
    CHECK_MESSAGE((with_case.contains(name.model) ||
                   make_model(plain_config(name))->stream_signature(State()).has_value()),
                  std::string(name.family)
                      << "/" << std::string(name.model) << " has no golden case (tests/golden/"
                      << std::string(name.family)
                      << ") and no signature of its streams (Model::stream_signature): nothing but itself "
                         "tells what it computes");
}

TEST_CASE("golden: every case agrees at f64 in logits and loss and gradients and states") {
  for (const fs::path& folder : cases()) {
    CAPTURE(folder.string());
    check_dump(folder, "f64", kF64);
  }
}

TEST_CASE("golden: every case agrees at f32 in logits and loss and gradients and states") {
  for (const fs::path& folder : cases()) {
    CAPTURE(folder.string());
    const bool recurrent = folder.parent_path().filename() == "recurrent_transformer";
    check_dump(folder, "f32", recurrent ? kF32RecurrentTransformer : kF32);
  }
}

TEST_CASE("golden: the literal equations agree with every case at f64") {
  for (const fs::path& folder : cases()) {
    CAPTURE(folder.string());
    const TensorMap golden = load_safetensors((folder / "case.safetensors").string());
    const auto model = model_of(folder, golden);
    ForwardInput input;
    input.tokens = golden.at("tokens");
    input.tail = golden.at("targets").dim(1);
    input.literal = true;
    if (golden.contains("start")) input.start = golden.at("start");
    for (const auto& [name, tensor] : golden)
      if (name.starts_with("state.")) input.state.set(name.substr(6), tensor);
    const Outcome outcome = run(*model, input, golden.at("targets"));
    check_close("logits", outcome.logits, golden.at("logits"), kF64.value, kF64.floor);
    check_close("loss", Tensor::full({1}, outcome.loss, Dtype::f64), golden.at("loss"), kF64.value,
                kF64.floor);
    for (const auto& [name, gradient] : outcome.gradients)
      check_close(
          "grad." + name,
          gradient.defined() ? gradient : Tensor::zeros(golden.at("param." + name).shape(), Dtype::f64),
          golden.at("grad." + name), kF64.gradient, kF64.floor);
  }
}

TEST_CASE("golden: streaming one token at a time agrees with every case that can be streamed") {
  for (const fs::path& folder : cases()) {
    CAPTURE(folder.string());
    const TensorMap golden = load_safetensors((folder / "case.safetensors").string());
    const auto model = model_of(folder, golden);
    if (model->full_config().readout != "all") continue;
    // A stream begins with a document or goes on from what a call left, and knows no borders between
    // segments.
    if (golden.contains("start") && golden.at("start").dim(1) > 1) continue;
    const Tensor& tokens = golden.at("tokens");
    State state;
    for (const auto& [name, tensor] : golden)
      if (name.starts_with("state.")) state.set(name.substr(6), raw::copy(tensor));
    if (!state.empty() && golden.contains("start")) continue;
    for (std::int64_t t = 0; t < tokens.dim(1); ++t) {
      CAPTURE(t);
      const Tensor logits = model->stream(raw::copy(raw::narrow(tokens, 1, t, 1)), state);
      // One scale for the whole sequence, as for the case: a single position may be small by chance.
      const Distance found = distance(logits, raw::narrow(golden.at("logits"), 1, t, 1));
      const double scale = distance(golden.at("logits"), golden.at("logits")).scale;
      CHECK(found.error <= kF64.value * scale + kF64.floor);
    }
  }
}
