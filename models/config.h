// The configuration of a model as plain values: its family, sizes and switches. train/ fills it from files
// and flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eddy {

class KeyList;  // models/config_keys.h

struct ModelConfig {
  std::string family = "recurrent_transformer";
  std::string model = "unit_forget";
  std::int64_t vocab = 0;
  std::int64_t n_out = 0;
  std::int64_t context = 256;
  std::int64_t dim = 384;
  std::int64_t layers = 1;
  std::int64_t heads = 6;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t mlp_dim = 0;
  std::int64_t block = 1;
  double dropout = 0.0;
  double norm_eps = 0;
  double init_std = 0.02;
  bool positions = false;
  bool tied = true;
  bool bias = false;
  std::string activation = "gelu";
  std::string readout = "all";
  std::string accumulate = "output";

  // Several families.
  std::int64_t segment = 0;
  std::int64_t window = 0;
  std::int64_t chunk = 32;

  // block_recurrent.
  std::vector<std::int64_t> recurrent_layers;
  std::int64_t states = 512;
  std::string gate = "fixed";
  std::string cell = "skip";
  bool feedback = false;
  bool cache = true;
  bool clear_state = false;
  std::int64_t rel_buckets = 32;
  std::int64_t rel_max_distance = 128;
  bool qk_norm = true;
  double qk_eps = 1e-6;
  bool scale_abs = true;
  std::string logit_divisor = "sqrt_d";
  std::string tanh_rule = "code";
  bool z_bias = false;
  double attn_dropout = 0.0;
  bool mask_token_zero = true;
  std::vector<std::int64_t> memory_layers;
  std::int64_t memory_size = 0;
  std::int64_t memory_topk = 128;
  std::string memory_search = "bucket";
  bool memory_bias = true;

  // blockwise_recurrent.
  std::string memory_qkv = "separate";
  std::string memory_init = "learned";
  bool memory_query = false;
  bool memory_ffn = true;
  bool memory_ffn_prenorm = true;
  bool memory_norm = true;
  bool memory_proj = false;
  std::string detach = "segment";
  double rope_theta = 10000.0;

  // staircase.
  std::int64_t steps = 2;
  std::int64_t cache_after = 0;
  std::int64_t span = 0;
  bool prenorm = true;
  std::string carry = "exact";
  std::string cold_start = "zeros";
  std::int64_t repeats = 1;
  bool shared_kv = false;
  std::string feedback_memory = "mix";
  bool feedback_self = false;
  std::string feedback_carry = "raw";
  std::int64_t embed_dim = 0;
  double emb_dropout = 0.0;
  double out_dropout = 0.0;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The families and the models, each once, in the order of model_registry() (model.h).
std::vector<std::string> family_list();
std::vector<std::string> model_list();

// Describes the keys, each once: the common ones here, a family's in its config.cpp.
void describe(KeyList& keys, ModelConfig& config);

// Checks the rule of each key, and the rules between keys: sizes that must divide each other, switches that
// exclude each other.
// errors: ConfigError naming the keys and their values. A vocab of 0 is an error: set the tokenizer's count
// first.
void validate(const ModelConfig& config);

// The positions that give logits: model.readout in the family recurrent_transformer, "all" in the others.
std::string readout_of(const ModelConfig& config);

// Whether the model works in blocks of `block` positions; other models ignore that key and Batch::block.
bool has_blocks(const ModelConfig& config);

// The config with every default that depends on other keys filled in (n_out, kv_heads, head_dim, ...).
// errors: as validate.
ModelConfig resolved(ModelConfig config);

}  // namespace eddy
