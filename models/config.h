// What a model is built from: sizes, switches and the family they belong to, as plain values. train/ reads
// them from files and flags; models/ only looks at them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace eddy {

struct ModelConfig {
  std::string family = "recurrent_transformer";
  std::string model = "unit_forget";
  std::int64_t vocab = 0;      // 0: what the tokenizer counts
  std::int64_t n_out = 0;      // 0: vocab
  std::int64_t context = 256;  // rows of the position table, and the default training sequence
  std::int64_t dim = 384;
  std::int64_t layers = 1;
  std::int64_t heads = 6;
  std::int64_t kv_heads = 0;  // 0: heads
  std::int64_t head_dim = 0;  // 0: dim / heads
  std::int64_t mlp_dim = 0;   // 0: 4 * dim
  std::int64_t block = 1;     // positions per block of the recurrence
  double dropout = 0.0;
  double norm_eps = 1e-5;
  double init_std = 0.02;
  bool positions = false;             // learned positions, added to the embeddings
  bool tied = true;                   // the head is the token table
  bool bias = false;                  // biases in norms and linear layers
  std::string activation = "gelu";    // gelu | relu
  std::string readout = "all";        // all | last | tail
  std::string accumulate = "output";  // output | hidden: what block_accumulate spreads forward

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The names a config may give, each model with its family.
struct ModelName {
  const char* family;
  const char* model;
};
std::span<const ModelName> model_names();

// Without repetition, in the order of model_names().
std::vector<std::string> family_list();
std::vector<std::string> model_list();

// Checks what no single key can tell: sizes that must divide each other, switches that exclude each other.
// errors: ConfigError naming the keys and their values. A vocab of 0 is one: the tokenizer's count must be
// put in first.
void validate(const ModelConfig& config);

// The config with every 0 that stands for another key (n_out, kv_heads, head_dim, mlp_dim) replaced by that
// value. errors: as validate.
ModelConfig resolved(ModelConfig config);

}  // namespace eddy
