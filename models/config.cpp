// Rules between the keys of a ModelConfig.
#include "models/config.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>

#include "models/config_rules.h"
#include "models/model.h"
#include "tensor/base/format.h"

namespace eddy {

namespace rules {

void at_least(std::int64_t least, std::initializer_list<std::pair<const char*, std::int64_t>> keys) {
  for (const auto& [key, value] : keys)
    if (value < least) fail<ConfigError>("config: model.{} is {} (at least {})", key, value, least);
}

void one_of(const char* key, const std::string& value, std::initializer_list<const char*> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    fail<ConfigError>("config: model.{} is \"{}\" (one of {})", key, value, fmt::join(allowed, ", "));
}

void below_one(const char* key, double value) {
  if (!(value >= 0 && value < 1)) fail<ConfigError>("config: model.{} is {} (in [0, 1))", key, value);
}

void width_of_heads(const ModelConfig& c) {
  if (c.head_dim != 0 && c.head_dim * c.heads != c.dim)
    fail<ConfigError>(
        "config: model.head_dim must be dim / heads in this family: dim {}, heads {}, head_dim {} (leave "
        "it out)",
        c.dim, c.heads, c.head_dim);
}

void one_kind_of_heads(const ModelConfig& c) {
  if (c.kv_heads != 0 && c.kv_heads != c.heads)
    fail<ConfigError>(
        "config: model.kv_heads must be heads in this family: heads {}, kv_heads {} (leave it out)", c.heads,
        c.kv_heads);
}

void tied_head(const ModelConfig& c) {
  if (c.tied && c.n_out != 0 && c.n_out != c.vocab)
    fail<ConfigError>(
        "config: a tied head has one row per token: vocab {}, n_out {} (set model.tied = false)", c.vocab,
        c.n_out);
}

}  // namespace rules

namespace {

using rules::at_least, rules::below_one, rules::one_of;

void check_name(const ModelConfig& c) {
  for (const ModelName& name : model_registry())
    if (c.model == name.model && c.family == name.family) return;
  std::vector<std::string> of_family;
  for (const ModelName& name : model_registry())
    if (c.family == name.family) of_family.emplace_back(name.model);
  if (of_family.empty())
    fail<ConfigError>("config: model.family is \"{}\" (one of {})", c.family, fmt::join(family_list(), ", "));
  fail<ConfigError>("config: model.model is \"{}\", which family {} does not have (one of {})", c.model,
                    c.family, fmt::join(of_family, ", "));
}

void check_heads(const ModelConfig& c) {
  if (c.head_dim == 0 && c.dim % c.heads != 0)
    fail<ConfigError>("config: model.heads must divide model.dim: dim {}, heads {} (or set head_dim)", c.dim,
                      c.heads);
  if (c.kv_heads != 0 && c.heads % c.kv_heads != 0)
    fail<ConfigError>("config: model.kv_heads must divide model.heads: heads {}, kv_heads {}", c.heads,
                      c.kv_heads);
}

void check_recurrent_transformer(const ModelConfig& c) {
  at_least(1, {{"block", c.block}});
  rules::width_of_heads(c);
  rules::one_kind_of_heads(c);
  rules::tied_head(c);
  one_of("activation", c.activation, {"gelu", "relu"});
  one_of("readout", c.readout, {"all", "last", "tail"});
  one_of("accumulate", c.accumulate, {"output", "hidden"});
}

}  // namespace

std::vector<std::string> family_list() {
  std::vector<std::string> families;
  for (const ModelName& name : model_registry())
    if (families.empty() || families.back() != name.family) families.emplace_back(name.family);
  return families;
}

std::vector<std::string> model_list() {
  std::vector<std::string> models;
  for (const ModelName& name : model_registry()) models.emplace_back(name.model);
  return models;
}

void validate(const ModelConfig& c) {
  check_name(c);
  if (c.vocab == 0)
    fail<ConfigError>("config: model.vocab is 0 (set it, or put in the number of the tokenizer's tokens)");
  at_least(1, {{"vocab", c.vocab}, {"context", c.context}, {"dim", c.dim}, {"layers", c.layers}});
  at_least(1, {{"heads", c.heads}});
  at_least(0, {{"n_out", c.n_out}, {"kv_heads", c.kv_heads}, {"head_dim", c.head_dim}});
  at_least(0, {{"mlp_dim", c.mlp_dim}});
  below_one("dropout", c.dropout);
  if (!(c.norm_eps >= 0 && std::isfinite(c.norm_eps)))
    fail<ConfigError>("config: model.norm_eps is {} (above 0, finite; 0 for the family's own)", c.norm_eps);
  if (!(c.init_std >= 0 && std::isfinite(c.init_std)))
    fail<ConfigError>("config: model.init_std is {} (at least 0, finite)", c.init_std);
  if (c.model != "lstm") check_heads(c);
  if (c.family == "recurrent_transformer") check_recurrent_transformer(c);
  if (c.family == "block_recurrent") rules::check_block_recurrent(c);
  if (c.family == "blockwise_recurrent") rules::check_blockwise_recurrent(c);
  if (c.family == "staircase") rules::check_staircase(c);
}

std::string readout_of(const ModelConfig& config) {
  return config.family == "recurrent_transformer" ? config.readout : "all";
}

bool has_blocks(const ModelConfig& config) {
  return config.model == "block_forget" || config.model == "block_accumulate";
}

ModelConfig resolved(ModelConfig config) {
  validate(config);
  if (config.n_out == 0) config.n_out = config.vocab;
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_dim == 0) config.head_dim = std::max<std::int64_t>(config.dim / config.heads, 1);
  if (config.norm_eps == 0) config.norm_eps = config.family == "block_recurrent" ? 1e-6 : 1e-5;
  if (config.mlp_dim == 0)
    config.mlp_dim =
        config.family == "blockwise_recurrent" ? (2 * 4 * config.dim / 3 + 31) / 32 * 32 : 4 * config.dim;
  if (config.segment == 0) config.segment = config.context;
  if (config.window == 0) config.window = config.segment;
  // Keys that only some models of a family read.
  if (!has_blocks(config)) config.block = 1;
  if (config.model != "cached_staircase") config.cache_after = config.steps;
  if (config.cache_after == 0) config.cache_after = 1;
  if (config.model != "ladder" && config.model != "universal") config.repeats = 1;
  if (config.model != "block_recurrent") config.recurrent_layers.clear();
  if (config.model != "block_recurrent") config.feedback = false;
  if (config.model != "memorizing") config.memory_layers.clear();
  config.readout = readout_of(config);
  if (config.family == "block_recurrent") config.tied = true;
  if (config.family == "block_recurrent") config.n_out = config.vocab;
  if (config.span == 0) config.span = config.steps * config.chunk;
  if (config.embed_dim == 0) config.embed_dim = config.dim;
  return config;
}

}  // namespace eddy
