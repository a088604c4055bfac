// All small configurations of all models, and what a test that goes over them must know of each: parameters
// in which nothing is special, and how many tokens a call of it takes.
//
//   one call          | segment | segment | rest |            uneven_time
//   calls in a row    | call_time | call_time | call_time |   each goes on from the state of the one before
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/models/block_recurrent/block_recurrent_case.h"
#include "tests/models/blockwise_recurrent/blockwise_recurrent_case.h"
#include "tests/models/compare.h"
#include "tests/models/recurrent_transformer/recurrent_transformer_case.h"
#include "tests/models/staircase/staircase_case.h"

namespace eddy::test {

inline std::vector<ModelCase> every_case() {
  std::vector<ModelCase> all;
  for (const auto& family : {recurrent_transformer_cases(), block_recurrent_cases(),
                             blockwise_recurrent_cases(), staircase_cases()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

// The configuration from which a model's cases begin.
inline ModelConfig plain_config(const ModelName& name) {
  const std::string family = name.family;
  if (family == "block_recurrent") return block_recurrent_config(name.model);
  if (family == "blockwise_recurrent") return blockwise_config(name.model);
  if (family == "staircase") return staircase_config(name.model);
  return small_config(name.model);
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
  if (config.family == "block_recurrent") return randomised(config, 5, dtype);
  if (config.family == "blockwise_recurrent") return blockwise_model(config, dtype);
  return random_model(config, dtype);
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

// Tokens after which a call that carries its state may end: whole windows, chunks or segments.
inline std::int64_t call_time(const ModelConfig& c) {
  if (c.family == "block_recurrent") return 16;
  if (c.family == "blockwise_recurrent") return 2 * c.chunk;
  if (c.family == "staircase") return (5 + c.segment) / c.segment * c.segment;
  if (c.keep_state) return (7 + c.block) / c.block * c.block;
  return 8;
}

// Tokens of a call with several segments, blocks or chunks, of which the last is short where it may be.
inline std::int64_t uneven_time(const ModelConfig& c) {
  if (c.family == "block_recurrent") return 16 + c.window;
  if (c.family == "blockwise_recurrent") return 16 / c.chunk * c.chunk + 3;
  if (c.family != "staircase") return 17;
  const std::int64_t whole = (11 + c.segment) / c.segment * c.segment;
  if (!has_chunks(c)) return whole + std::min<std::int64_t>(c.segment - 1, 5);
  return whole + (c.carry == "exact" && c.chunk < c.segment ? c.chunk : c.segment);
}

// Tokens of a last call that is shorter than the others where it may be.
inline std::int64_t rest_of(const ModelConfig& c) {
  if (c.family == "block_recurrent") return c.window;
  if (c.family == "staircase") return uneven_time(c) - (11 + c.segment) / c.segment * c.segment;
  return 3;
}

// Lengths of calls that a model must get right: one token or block, and whole numbers of them with and
// without a rest.
inline std::vector<std::int64_t> lengths_of(const ModelConfig& c) {
  if (c.family == "block_recurrent") return {c.window, uneven_time(c), 32};
  if (c.family == "blockwise_recurrent") return {1, 3, 4, 7, 12};
  if (c.family == "staircase") {
    // A token without a past sees nothing where the past is empty: two of them.
    if (!has_chunks(c)) return {c.cold_start == "empty" ? 2 : 1, c.segment, uneven_time(c)};
    if (c.carry == "official") return {c.segment, uneven_time(c)};
    return {c.chunk, c.segment, uneven_time(c)};
  }
  std::vector<std::int64_t> lengths{1, 2, 3, 17};
  for (const std::int64_t time : {c.block, c.block + 1, 2 * c.block, 2 * c.block + 1})
    if (time <= c.context && std::count(lengths.begin(), lengths.end(), time) == 0) lengths.push_back(time);
  return lengths;
}

// Rows of logits for so many tokens.
inline std::int64_t rows_of(const ModelConfig& c, std::int64_t time) {
  if (readout_of(c) == "last") return 1;
  return readout_of(c) == "tail" ? (time + 1) / 2 : time;
}

// Whether rows with and without a past can stand in one batch.
inline bool mixes_starts(const ModelConfig& c) {
  return c.family != "staircase" || c.cold_start == "zeros" || c.model == "lstm";
}

// Flags with which the second row of two begins anew: in the second segment of the call, or in the first of
// one. Undefined for models that know no documents.
inline Tensor starts_of(const ModelConfig& c, std::int64_t time) {
  if (c.family == "blockwise_recurrent" || c.keep_state)
    return Tensor::from(std::vector<std::int64_t>{0, 1}, {2, 1});
  if (c.family != "block_recurrent" && c.family != "staircase") return {};
  const std::int64_t segments = (time + c.segment - 1) / c.segment, flagged = segments > 1 ? 1 : 0;
  const Tensor flags = Tensor::zeros({2, segments}, Dtype::i64);
  flags.mutable_data<std::int64_t>()[segments + flagged] = 1;
  if (!mixes_starts(c)) flags.mutable_data<std::int64_t>()[flagged] = segments > 1 ? 1 : 0;
  if (!mixes_starts(c) && segments == 1) return {};
  return flags;
}

// Why a parameter that exists has no influence on the loss, whatever the input; "" for the others.
inline std::string without_influence(const ModelConfig& c, const std::string& parameter) {
  const auto is_one_of = [&](std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(), [&](const char* one) { return contains(parameter, one); });
  };
  if (parameter.ends_with("memory.wq.weight")) return "nothing asks the memory's query matrix";
  if (c.model == "llama_window" && c.window == 1 && is_one_of({"attn.wq", "attn.wk"}))
    return "the only key in sight gets all attention whatever its score";
  if (c.model != "block_recurrent") return "";
  const bool recurs = contains(parameter, "layers.1.");
  if (c.window == 1 && (is_one_of({".attn.scale", ".attn.rel_bias", ".attn.wq"}) ||
                        (is_one_of({".attn.wk"}) && !recurs)))  // states have several tokens in sight
    return "the only key in sight gets all attention whatever its score";
  if (c.states == 1 &&
      is_one_of({"cross.scale", "cross.wq", "recurrent.scale_self", "recurrent.wk", "recurrent.wq_self"}))
    return "the only state gets all attention whatever its score";
  if (c.segment == c.window &&
      is_one_of({"recurrent.gate_", "recurrent.mlp", "recurrent.scale_", "recurrent.wq_"}))
    return "what a segment's last block writes is read in the next segment alone";
  return "";
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

// Whether the word-for-word form draws the same dropout masks.
inline bool forms_share_masks(const ModelConfig& config) {
  return (config.family == "block_recurrent" && config.attn_dropout == 0) || config.family == "staircase";
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
