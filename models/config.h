// The configuration of a model as plain values: its family, sizes and switches. train/ fills it from files
// and flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eddy {

struct ModelConfig {
  std::string family = "recurrent_transformer";
  std::string model = "unit_forget";
  std::int64_t vocab = 0;      // 0: the tokenizer's number of tokens
  std::int64_t n_out = 0;      // 0: vocab
  std::int64_t context = 256;  // rows of the position table, and the default length of a training sequence
  std::int64_t dim = 384;
  std::int64_t layers = 1;
  std::int64_t heads = 6;
  std::int64_t kv_heads = 0;  // 0: heads
  std::int64_t head_dim = 0;  // 0: dim / heads
  std::int64_t mlp_dim = 0;  // 0: 4 * dim; in blockwise_recurrent 2/3 of that, rounded up to a multiple of 32
  std::int64_t block = 1;    // positions per block of the recurrence; models without blocks ignore it
  double dropout = 0.0;
  double norm_eps = 0;  // 0: 1e-6 in block_recurrent, 1e-5 in the others
  double init_std = 0.02;
  bool positions = false;             // learned positions, added to the embeddings
  bool tied = true;                   // the head is the token table
  bool bias = false;                  // biases in norms and linear layers
  std::string activation = "gelu";    // gelu | relu
  std::string readout = "all";        // all | last | tail
  std::string accumulate = "output";  // output | hidden: what block_accumulate adds to the next windows (p)

  // Several families.
  std::int64_t segment = 0;  // tokens per segment; the state between segments is detached. 0: context
  std::int64_t window = 0;   // keys that a token sees (llama_window, block_recurrent), and tokens per block
                             // (block_recurrent). 0: segment
  std::int64_t chunk = 32;   // tokens per chunk (staircase, blockwise_recurrent); also rows of the memory

  // block_recurrent.
  std::vector<std::int64_t> recurrent_layers;
  std::int64_t states = 512;
  std::string gate = "fixed";  // fixed | lstm
  std::string cell = "skip";   // dual | single | skip
  bool feedback = false;
  bool cache = true;         // the next segment sees keys and values of the last window
  bool clear_state = false;  // every segment begins with the initial state
  std::int64_t rel_buckets = 32;
  std::int64_t rel_max_distance = 128;
  bool qk_norm = true;
  double qk_eps = 1e-6;
  bool scale_abs = true;
  std::string logit_divisor = "sqrt_d";  // sqrt_d | sqrt_vocab | none
  std::string tanh_rule = "code";        // code | paper
  bool z_bias = false;
  double attn_dropout = 0.0;    // of attention probabilities
  bool mask_token_zero = true;  // token 0 is padding: it carries no loss in training
  std::vector<std::int64_t> memory_layers;
  std::int64_t memory_size = 0;
  std::int64_t memory_topk = 128;
  std::string memory_search = "bucket";  // bucket | exact
  bool memory_bias = true;

  // blockwise_recurrent.
  std::string memory_qkv = "separate";  // separate | shared
  std::string memory_init = "learned";  // learned | zero
  bool memory_query = false;
  bool memory_ffn = true;
  bool memory_ffn_prenorm = true;
  bool memory_norm = true;
  bool memory_proj = false;
  std::string detach = "segment";  // segment | chunk
  double rope_theta = 10000.0;

  // staircase.
  std::int64_t steps = 2;        // N: passes of each token through the stack; also the chunks in the window
  std::int64_t cache_after = 0;  // M: passes before a chunk is frozen; 0: steps, in cached_staircase 1
  std::int64_t span = 0;         // columns of the position table; 0: steps * chunk
  bool prenorm = true;
  std::string carry = "exact";       // exact | official
  std::string cold_start = "zeros";  // zeros | empty
  std::int64_t repeats = 1;
  bool shared_kv = false;
  std::string feedback_memory = "mix";  // mix | last
  bool feedback_self = false;
  std::string feedback_carry = "raw";  // raw | official
  std::int64_t embed_dim = 0;          // of the LSTM's embedding; 0: dim
  double emb_dropout = 0.0;
  double out_dropout = 0.0;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The families and the models, each once, in the order of model_registry() (model.h).
std::vector<std::string> family_list();
std::vector<std::string> model_list();

// Checks the rules between keys: sizes that must divide each other, switches that exclude each other.
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
