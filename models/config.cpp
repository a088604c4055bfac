// Rules between the keys of a ModelConfig.
#include "models/config.h"

#include <fmt/ranges.h>
#include <algorithm>

#include "models/config_keys.h"
#include "models/config_rules.h"
#include "models/model.h"
#include "tensor/base/format.h"

namespace eddy {

namespace rules {

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

const FamilyEntry& family_entry(const ModelConfig& config) {
  const std::span<const FamilyEntry> all = family_registry();
  return *std::find_if(all.begin(), all.end(),
                       [&](const FamilyEntry& family) { return config.family == family.name; });
}

}  // namespace

std::vector<std::string> family_list() {
  std::vector<std::string> families;
  for (const FamilyEntry& family : family_registry()) families.emplace_back(family.name);
  return families;
}

std::vector<std::string> model_list() {
  std::vector<std::string> models;
  for (const ModelName& name : model_registry()) models.emplace_back(name.model);
  return models;
}

void describe(KeyList& keys, ModelConfig& c) {
  keys.section("model");
  keys.add("family", c.family, "Model family", family_list()).everyday();
  keys.add("model", c.model, "Model of the family", model_list()).everyday();
  keys.add("vocab", c.vocab, "Number of token ids; 0: as many as the tokenizer has", {0, 1'000'000'000});
  keys.add("n_out", c.n_out, "Number of classes that the head predicts; 0: vocab", {0, 1'000'000'000})
      .read_by("-block_recurrent");
  keys.add("context", c.context, "Longest sequence with learned positions; also the default of segment",
           {1, 1'000'000'000})
      .everyday();
  keys.add("dim", c.dim, "Width of the residual stream", {1, 1'048'576}).everyday();
  keys.add("layers", c.layers, "Number of layers", {1, 65'536}).everyday();
  keys.add("heads", c.heads, "Number of attention heads", {1, 65'536}).read_by("-lstm").everyday();
  keys.add("kv_heads", c.kv_heads, "Number of heads of keys and values; 0: heads", {0, 65'536})
      .read_by("blockwise_recurrent");
  keys.add("head_dim", c.head_dim, "Width of a head; 0: dim / heads", {0, 1'048'576})
      .read_by("block_recurrent staircase -lstm");
  keys.add("mlp_dim", c.mlp_dim,
           "Width inside the MLP; 0: 4 dim (blockwise_recurrent: 8/3 dim, up to a multiple of 32)",
           {0, 16'777'216})
      .read_by("-lstm");
  keys.add("dropout", c.dropout, "Probability of dropping a value", kBelowOne).everyday();
  keys.add("norm_eps", c.norm_eps,
           "Number added to the variance in norms; 0: 1e-6 in block_recurrent, else 1e-5", {.low = 0})
      .read_by("-lstm");
  keys.add("tied", c.tied, "Whether the head uses the token table as its weight")
      .read_by("recurrent_transformer blockwise_recurrent");
  keys.add("init_std", c.init_std, "Standard deviation of initial weights", {.low = 0})
      .read_by("recurrent_transformer blockwise_recurrent");
  keys.add("segment", c.segment, "Tokens of one call; the state is detached between segments; 0: context",
           {0, 1'000'000'000})
      .everyday();
  keys.add("window", c.window, "Number of tokens that a token sees; 0: segment", {0, 1'000'000'000})
      .read_by("block_recurrent llama_window");
  keys.add("chunk", c.chunk,
           "Rows of the memory (memory_llama), or tokens that enter the staircase at a step",
           {1, 1'000'000'000})
      .read_by("memory_llama staircase -lstm");
  keys.add("mask_token_zero", c.mask_token_zero, "Whether token 0 of documents is padding, without a loss")
      .oddity();
  for (const FamilyEntry& family : family_registry()) family.describe(keys, c);
}

void validate(const ModelConfig& c) {
  check_name(c);
  if (c.vocab == 0)
    fail<ConfigError>("config: model.vocab is 0 (set it, or put in the number of the tokenizer's tokens)");
  ModelConfig copy = c;  // described keys point into a struct that is not const
  KeyList keys;
  describe(keys, copy);
  for (const ConfigField& field : keys.fields()) field.check();
  if (c.model != "lstm") check_heads(c);
  family_entry(c).check(c);
}

std::string readout_of(const ModelConfig& config) {
  return config.family == "recurrent_transformer" ? config.readout : "all";
}

bool has_blocks(const ModelConfig& config) {
  return config.model == "block_forget" || config.model == "block_accumulate";
}

ModelConfig resolved(ModelConfig config) {
  validate(config);
  family_entry(config).fill(config);
  if (config.n_out == 0) config.n_out = config.vocab;
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_dim == 0) config.head_dim = std::max<std::int64_t>(config.dim / config.heads, 1);
  if (config.norm_eps == 0) config.norm_eps = 1e-5;
  if (config.mlp_dim == 0) config.mlp_dim = 4 * config.dim;
  if (config.segment == 0) config.segment = config.context;
  if (config.window == 0) config.window = config.segment;
  for (const FamilyEntry& family : family_registry()) family.fill(config);  // keys that only others read
  return config;
}

}  // namespace eddy
