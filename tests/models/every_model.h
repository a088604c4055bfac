// All small configurations of all models, and what their families say of them (family_case.h).
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/eddy/families.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tests/models/compare.h"
#include "tests/models/family_case.h"
#include "tests/models/family_cases.h"

namespace eddy::test {

// The families of this build, in their order.
inline const std::vector<std::pair<std::string, const FamilyCase*>>& every_family() {
#define EDDY_CASE_OF(family) {#family, &family##_case()},
  static const std::vector<std::pair<std::string, const FamilyCase*>> all{EDDY_FAMILIES(EDDY_CASE_OF)};
  return all;
}

// errors: ConfigError for a family that a program registered.
inline const FamilyCase& family_case(const std::string& name) {
  for (const auto& [known, family] : every_family())
    if (known == name) return *family;
  fail<ConfigError>("tests of all models: the family {} has no cases", name);
}
inline const FamilyCase& family_case(const ModelConfig& config) {
  return family_case(config.family);
}

inline std::vector<ModelCase> every_case() {
  std::vector<ModelCase> all;
  for (const auto& [name, family] : every_family()) {
    const std::vector<ModelCase> cases = family->all();
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

// The configuration from which a model's cases begin.
inline ModelConfig plain_config(const ModelName& name) {
  return family_case(name.family).plain(name.model);
}

// The same with sizes that are multiples of 2: two layers of 16 numbers, blocks, chunks and windows of 4
// tokens, segments of 8. A size that the model does not take (one layer, a window per segment) stays.
inline ModelConfig even_config(const ModelName& name, std::int64_t vocab, std::int64_t context) {
  ModelConfig config = plain_config(name);
  config.vocab = vocab;
  config.context = context;
  config.dim = 16;
  config.heads = 2;
  config.n_out = config.kv_heads = config.head_dim = config.mlp_dim = config.embed_dim = config.span = 0;
  config.block = config.chunk = config.states = 4;
  config.segment = 8;
  config.window = 0;
  config.memory_size = 16;
  config.memory_topk = 2;
  const auto set_if_taken = [&](std::int64_t ModelConfig::*size, std::int64_t value) {
    ModelConfig changed = config;
    changed.*size = value;
    try {
      validate(changed);
      config = changed;
    } catch (const ConfigError&) {
    }
  };
  set_if_taken(&ModelConfig::layers, 2);
  set_if_taken(&ModelConfig::window, 4);
  return config;
}

// Random parameters: no scale is 1, no memory begins with zeros.
inline std::unique_ptr<Model> model_of(const ModelConfig& config, Dtype dtype = Dtype::f64) {
  return family_case(config).random(config, dtype);
}

// `each` with every case and its model.
template <class Each>
void for_every_case(Each&& each) {
  for (const auto& [name, config] : every_case()) {
    const std::string& model = config.model;
    CAPTURE(model);
    CAPTURE(name);
    each(config, *model_of(config));
  }
}

// `each` with the plain configuration of every registered model and its model.
template <class Each>
void for_every_model(Each&& each) {
  for (const ModelName& name : model_registry()) {
    const ModelConfig config = plain_config(name);
    CAPTURE(config.model);
    each(config, *model_of(config));
  }
}

inline std::int64_t call_time(const ModelConfig& config) {
  return family_case(config).call_time(config);
}
inline std::int64_t uneven_time(const ModelConfig& config) {
  return family_case(config).uneven_time(config);
}
inline bool mixes_starts(const ModelConfig& config) {
  return family_case(config).mixes_starts(config);
}
inline bool forms_share_masks(const ModelConfig& config) {
  return family_case(config).forms_share_masks(config);
}
inline std::string without_influence(const ModelConfig& config, const std::string& parameter) {
  return family_case(config).without_influence(config, parameter);
}

// Rows of logits for so many tokens.
inline std::int64_t rows_of(const ModelConfig& c, std::int64_t time) {
  if (readout_of(c) == "last") return 1;
  return readout_of(c) == "tail" ? (time + 1) / 2 : time;
}

// Flags with which the second row of two begins anew: in the second segment of the call, or in the first of
// one. Undefined for models that know no documents.
inline Tensor starts_of(const ModelConfig& c, std::int64_t time) {
  const Starts starts = family_case(c).starts(c);
  if (starts == Starts::nowhere) return {};
  if (starts == Starts::calls) return Tensor::from(std::vector<std::int64_t>{0, 1}, {2, 1});
  const std::int64_t segments = (time + c.segment - 1) / c.segment, flagged = segments > 1 ? 1 : 0;
  const Tensor flags = Tensor::zeros({2, segments}, Dtype::i64);
  flags.mutable_data<std::int64_t>()[segments + flagged] = 1;
  if (!mixes_starts(c)) flags.mutable_data<std::int64_t>()[flagged] = segments > 1 ? 1 : 0;
  if (!mixes_starts(c) && segments == 1) return {};
  return flags;
}

// Two orders of the same f64 sums, relative to the largest number of a tensor. A token's number comes of up
// to 50 applications of a layer one after the other, each of some 200 sums and products: 10^4 roundings of
// 1e-16 if all go one way. The floor is for gradients that are sums of larger numbers that cancel.
inline constexpr double kOrder = 1e-12, kFloor = 1e-13;

inline ForwardInput input_for(const ModelConfig& config, const Tensor& tokens, const State& state = {}) {
  ForwardInput input;
  input.tokens = tokens;
  input.tail = rows_of(config, tokens.dim(1));
  input.state = state;
  return input;
}

inline ForwardOutput forwarded(const Model& model, const Tensor& tokens, const State& state = {},
                               const Tensor& start = {}) {
  const NoGrad no_grad;
  ForwardInput input = input_for(model.full_config(), tokens, state);
  input.start = start;
  return model.forward(input);
}

inline Tensor targets_for(const Model& model, std::int64_t batch, std::int64_t time) {
  return random_ids(batch, rows_of(model.full_config(), time), model.config().n_out, 2);
}

// What a call before leaves; empty for models that carry nothing.
inline State carried_state(const Model& model, std::int64_t batch) {
  const NoGrad no_grad;
  const ModelConfig& c = model.full_config();
  ForwardInput input;
  input.tokens = random_ids(batch, call_time(c), c.vocab, 8);
  input.tail = rows_of(c, call_time(c));
  return model.forward(input).state.detach();
}

}  // namespace eddy::test
