// The description of a run's keys, and the two layouts of a config file: with tables, or flat.
#include "train/config/run_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/format.h"
#include "train/config/config_file.h"

namespace eddy {

RunConfig::RunConfig() = default;
RunConfig::RunConfig(const RunConfig& other) = default;
RunConfig::RunConfig(RunConfig&& other) noexcept = default;
RunConfig& RunConfig::operator=(const RunConfig& other) = default;
RunConfig& RunConfig::operator=(RunConfig&& other) noexcept = default;
RunConfig::~RunConfig() = default;

namespace {

using nlohmann::json;

constexpr IntRange kCount{0, 1'000'000'000'000};
constexpr IntRange kSize{1, 1'000'000'000};
constexpr IntRange kSizeOrZero{0, 1'000'000'000};
constexpr IntRange kExamples{1, 10'000'000};

// Whether the model's keys stand at the top level. There "model" is the model's name; in a run's config it is
// a table.
bool is_flat(const json& value) {
  if (!value.is_object()) return false;
  const auto model = value.find("model");
  return value.contains("family") || (model != value.end() && !model->is_object());
}

// A flat config as one whose keys stand in a [model] table.
ConfigSource with_model_table(ConfigSource source) {
  if (!is_flat(source.value)) return source;
  ConfigSource moved{source.name, json::object(), {}};
  moved.value["model"] = std::move(source.value);
  for (auto& [key, place] : source.places) moved.places.emplace("model." + key, std::move(place));
  return moved;
}

RunConfig run_config_from(ConfigSource source) {
  RunConfig config;
  keys_of(config).read(with_model_table(std::move(source)));
  return config;
}

}  // namespace

void describe(ConfigKeys& keys, ModelConfig& c) {
  keys.section("model");
  keys.add("family", c.family, "model family", family_list());
  keys.add("model", c.model, "model of the family", model_list());
  keys.add("vocab", c.vocab, "tokens in the table, 0: the tokenizer's", kSizeOrZero);
  keys.add("n_out", c.n_out, "rows of the head, 0: vocab", kSizeOrZero);
  keys.add("context", c.context, "longest sequence with learned positions", kSize);
  keys.add("dim", c.dim, "width of the residual stream", {1, 1 << 20});
  keys.add("layers", c.layers, "layers", {1, 1 << 16});
  keys.add("heads", c.heads, "attention heads", {1, 1 << 16});
  keys.add("kv_heads", c.kv_heads, "heads of keys and values, 0: heads", {0, 1 << 16});
  keys.add("head_dim", c.head_dim, "width of a head, 0: dim / heads", {0, 1 << 20});
  keys.add("mlp_dim", c.mlp_dim, "width inside the MLP, 0: 4 dim", {0, 1 << 24});
  keys.add("dropout", c.dropout, "probability of dropping a value", kBelowOne);
  keys.add("norm_eps", c.norm_eps, "added to the variance in norms, 0: the family's own", kNonNegative);
  keys.add("block", c.block, "positions per block of the recurrence", kSize);
  keys.add("positions", c.positions, "learned positions");
  keys.add("tied", c.tied, "the head is the token table");
  keys.add("bias", c.bias, "biases in norms and linear layers");
  keys.add("activation", c.activation, "activation of the MLP", {"gelu", "relu"});
  keys.add("readout", c.readout, "positions that give logits", {"all", "last", "tail"});
  keys.add("accumulate", c.accumulate, "what block_accumulate spreads forward", {"output", "hidden"});
  keys.add("init_std", c.init_std, "standard deviation of initial weights", kNonNegative);
  keys.add("segment", c.segment, "tokens of one call, 0: context", kSizeOrZero);
  keys.add("window", c.window, "tokens a token sees (block_recurrent, llama_window), 0: segment",
           kSizeOrZero);
  keys.add("chunk", c.chunk, "rows of the memory, or tokens that enter the staircase at a step", kSize);
  // block_recurrent
  keys.add("recurrent_layers", c.recurrent_layers, "layers with a recurrent cell", {0, 1 << 16});
  keys.add("states", c.states, "state vectors of a recurrent layer", kSize);
  keys.add("gate", c.gate, "gate of the cell", {"fixed", "lstm"});
  keys.add("cell", c.cell, "configuration of the cell", {"dual", "single", "skip"});
  keys.add("feedback", c.feedback, "all layers read the state");
  keys.add("cache", c.cache, "keys and values of the last window go on into the next segment");
  keys.add("clear_state", c.clear_state, "the state begins anew at every segment");
  keys.add("rel_buckets", c.rel_buckets, "buckets of the relative bias", {2, 1 << 16});
  keys.add("rel_max_distance", c.rel_max_distance, "distance from which all share the last bucket", kSize);
  keys.add("qk_norm", c.qk_norm, "queries and keys are unit vectors; else q is divided by sqrt(head_dim)");
  keys.add("qk_eps", c.qk_eps, "added to the squared length of queries and keys", kNonNegative);
  keys.add("scale_abs", c.scale_abs, "attention is scaled by the absolute value of its scale");
  keys.add("logit_divisor", c.logit_divisor, "what logits are divided by", {"sqrt_d", "sqrt_vocab", "none"});
  keys.add("tanh_rule", c.tanh_rule, "where the gates' input goes through tanh", {"code", "paper"});
  keys.add("z_bias", c.z_bias, "bias on the gates' input");
  keys.add("attn_dropout", c.attn_dropout, "probability of dropping an attention probability", kBelowOne);
  keys.add("mask_token_zero", c.mask_token_zero, "token 0 is padding and carries no loss");
  keys.add("memory_layers", c.memory_layers, "layers with an external memory", {0, 1 << 16});
  keys.add("memory_size", c.memory_size, "entries of the external memory", kSizeOrZero);
  keys.add("memory_topk", c.memory_topk, "entries read per query", kSize);
  keys.add("memory_search", c.memory_search, "how entries are found", {"bucket", "exact"});
  keys.add("memory_bias", c.memory_bias, "memory layers keep the relative bias in local attention");
  // blockwise_recurrent
  keys.add("memory_qkv", c.memory_qkv, "projections of the memory", {"separate", "shared"});
  keys.add("memory_init", c.memory_init, "initial memory", {"learned", "zero"});
  keys.add("memory_query", c.memory_query, "keep the query matrix of the memory, which has no effect");
  keys.add("memory_ffn", c.memory_ffn, "the memory goes through an MLP between chunks");
  keys.add("memory_ffn_prenorm", c.memory_ffn_prenorm, "norm before that MLP");
  keys.add("memory_norm", c.memory_norm, "norm after that MLP");
  keys.add("memory_proj", c.memory_proj, "square matrix before that MLP");
  keys.add("detach", c.detach, "where gradients through the memory stop", {"segment", "chunk"});
  keys.add("rope_theta", c.rope_theta, "base of the rotary frequencies", kPositive);
  // staircase
  keys.add("steps", c.steps, "passes of a token, and chunks in the window", kSize);
  keys.add("cache_after", c.cache_after, "passes before a chunk is frozen, 0: steps (cached_staircase: 1)",
           kSizeOrZero);
  keys.add("span", c.span, "columns of the position table, 0: steps * chunk", kSizeOrZero);
  keys.add("prenorm", c.prenorm, "norm before attention and MLP instead of after");
  keys.add("carry", c.carry, "what is carried between segments", {"exact", "official"});
  keys.add("cold_start", c.cold_start, "what stands before the first token", {"zeros", "empty"});
  keys.add("repeats", c.repeats, "applications of the stack (ladder, universal)", kSize);
  keys.add("shared_kv", c.shared_kv, "feedback: all layers use layer 0's keys and values");
  keys.add("feedback_memory", c.feedback_memory, "what feedback remembers", {"mix", "last"});
  keys.add("feedback_self", c.feedback_self, "a token of feedback sees itself");
  keys.add("feedback_carry", c.feedback_carry, "what feedback carries between segments", {"raw", "official"});
  keys.add("embed_dim", c.embed_dim, "width of the LSTM's embedding, 0: dim", kSizeOrZero);
  keys.add("emb_dropout", c.emb_dropout, "dropout of embeddings (staircase)", kBelowOne);
  keys.add("out_dropout", c.out_dropout, "dropout before the head (staircase)", kBelowOne);
}

void describe(ConfigKeys& keys, DataConfig& c) {
  keys.section("data");
  keys.add("name", c.name, "data set");
  keys.add("path", c.path, "file or folder of the data");
  keys.add("tokenizer", c.tokenizer, "how text becomes tokens", {"char", "byte", "byte260", "*.model"});
  keys.add("split", c.split, "part of the tokens (or documents) to train on",
           {.low = 0, .high = 1, .low_open = true, .high_open = true});
  keys.add("test", c.test, "part of them, the last ones, that only `eval --split test` reads", kBelowOne);
  keys.add("order", c.order, "random windows, continuous reading, or one document after the other",
           {"windows", "stream", "documents"});
  keys.add(
      "offset", c.offset,
      "where a stream's first segment begins, at the start or anywhere; auto: zero in texts, else random",
      {"auto", "zero", "random"});
  keys.add("block_min", c.block_min, "images: smallest block size that a step draws, 0: model.block",
           kSizeOrZero);
  keys.add("block_max", c.block_max, "images: largest block size that a step draws, 0: model.block",
           kSizeOrZero);
  keys.add("symbols", c.symbols, "copy: symbols to remember", {1, 1 << 16});
  keys.add("noise", c.noise, "copy: noise symbols at the start; recall: tokens before the first question",
           {2, 1 << 24});
  keys.add("noise_max", c.noise_max, "copy: noise symbols at the end", {2, 1 << 24});
  keys.add("curriculum_every", c.curriculum_every, "copy: steps between lengthenings, 0: never", kCount);
  keys.add("curriculum_batches", c.curriculum_batches, "copy: validation batches of the curriculum", kSize);
  keys.add("rate_rule", c.rate_rule, "copy: how the learning rate follows the noise", {"code", "paper"});
  keys.add("secrets", c.secrets, "recall: secrets, one of which is told", {1, 1 << 16});
  keys.add("every", c.every, "recall: tokens from one question to the next", kSize);
  keys.add("segments", c.segments, "recall: segments of a document", {1, 1 << 16});
  keys.add("stop_loss", c.stop_loss, "images, copy: loss that ends the run, 0: none", kNonNegative);
  keys.add("examples_seed", c.examples_seed, "algorithm, random_walk: seed of the examples", {.low = 0});
  keys.add("examples", c.examples, "algorithm, random_walk: training examples", kExamples);
  keys.add("valid_examples", c.valid_examples, "algorithm, random_walk: validation examples", kExamples);
  keys.add("test_examples", c.test_examples, "algorithm, random_walk: test examples", kExamples);
  keys.add("statements", c.statements, "algorithm: statements of a program", {1, 1 << 20});
  keys.add("variables", c.variables, "algorithm: variables (published: 3 and 5)", {1, 5});
  keys.add("walk_length", c.walk_length, "random_walk: actions", {1, 1 << 20});
  keys.add("walk_grid", c.walk_grid, "random_walk: cells in a row and in a column", {1, 1024});
  keys.add("walk_torus", c.walk_torus, "random_walk: walking off an edge leads to the opposite one");
  keys.add("walk_random_start", c.walk_random_start,
           "random_walk: each walk announces a start of its own instead of beginning in cell (0, 0)");
}

void describe(ConfigKeys& keys, TrainConfig& c) {
  keys.section("train");
  keys.add("steps", c.steps, "optimizer steps", kCount);
  keys.add("batch", c.batch, "rows per batch", kSize);
  keys.add("accumulate", c.accumulate, "batches per step", kSize);
  keys.add("sequence", c.sequence, "tokens per row, 0: model.segment or model.context", kSizeOrZero);
  keys.add("carry_state", c.carry_state,
           "whether the model's state goes from batch to batch, auto: by data.order",
           {"auto", "always", "never"});
  keys.add("optimizer", c.optimizer, "optimizer", {"adamw", "adam", "adafactor"});
  keys.add("learning_rate", c.learning_rate, "learning rate after the warm-up", kNonNegative);
  keys.add("beta1", c.beta1, "decay of the gradient's mean", kBelowOne);
  keys.add("beta2", c.beta2, "decay of the gradient's square", kBelowOne);
  keys.add("eps", c.eps, "added to the root of the square", kPositive);
  keys.add("weight_decay", c.weight_decay, "decay of matrices per unit of learning rate", kNonNegative);
  keys.add("clip", c.clip, "largest norm of the gradient, 0: off", kNonNegative);
  keys.add("warmup", c.warmup, "steps of rising learning rate", kCount);
  keys.add("warmup_from", c.warmup_from, "what the first step of the warm-up counts as (0: its rate is 0)",
           {0, 1});
  keys.add("schedule", c.schedule, "learning rate after the warm-up",
           {"constant", "cosine", "linear", "rsqrt", "block_cosine"});
  keys.add("min_learning_rate", c.min_learning_rate, "learning rate at the last step", kNonNegative);
  keys.add("seed", c.seed, "of weights, batches and dropout", {.low = 0});
  keys.add("eval_every", c.eval_every, "steps between evaluations, 0: never", kCount);
  keys.add("eval_batches", c.eval_batches, "random batches per evaluation, 0: the whole validation split",
           kCount);
  keys.add("state_gain_batches", c.state_gain_batches,
           "where a state is carried: batches to measure what clearing it costs, 0: none", kCount);
  keys.add("checkpoint_every", c.checkpoint_every, "steps between checkpoints, 0: only at the end", kCount);
  keys.add("keep", c.keep, "checkpoints kept besides the best", kSize);
  keys.add("sample_every", c.sample_every, "steps between samples, 0: never", kCount);
  keys.add("sample_tokens", c.sample_tokens, "tokens per sample, 0: no samples", kSizeOrZero);
  keys.add("log_every", c.log_every, "steps between lines of the log", kSize);
  keys.add("max_bad_steps", c.max_bad_steps, "non-finite steps in a row before giving up", kSizeOrZero);
  keys.add("threads", c.threads, "CPU threads, 0: all", {0, 256});
  keys.add("minutes", c.minutes, "stop after so many minutes, 0: no limit", kNonNegative);
  keys.add("device", c.device, "where to compute", {"cpu", "cuda"});
  keys.add(
      "precision", c.precision,
      "f32; bf16: activations and products, beside parameters, gradients and states of f32 (on the CPU a "
      "slow check of what a GPU computes); f64 on the CPU; tf32 on a GPU: f32 whose products round "
      "their inputs",
      {"f32", "bf16", "tf32", "f64"});
  keys.add("capture", c.capture,
           "auto: on a GPU, capture a step and replay it; off: launch every kernel anew", {"auto", "off"});
}

Dtype precision_dtype(const std::string& precision) {
  if (precision == "f32" || precision == "tf32") return Dtype::f32;
  if (precision == "f64") return Dtype::f64;
  if (precision == "bf16") return Dtype::bf16;
  fail<ConfigError>("config: train.precision is {:?} (f32, bf16, tf32 or f64)", precision);
}

void describe(ConfigKeys& keys, RunConfig& config) {
  describe(keys, config.model);
  describe(keys, config.data);
  describe(keys, config.train);
}

ModelConfig model_config_from_json(const json& value, const std::string& name) {
  ConfigSource source{name, value, {}};
  if (!is_flat(value) && value.is_object()) {
    source.value = json::object();
    const auto model = value.find("model");
    if (model == value.end()) fail<ConfigError>("{}: the config has no model table and no model key", name);
    source.value["model"] = *model;
  }
  ModelConfig config;
  keys_of(config).read(with_model_table(std::move(source)));
  return config;
}

RunConfig run_config_from_json(const json& value, const std::string& name) {
  return run_config_from({name, value, {}});
}

RunConfig load_run_config(const std::string& path) {
  return run_config_from(read_config_file(path));
}

json to_json(const ModelConfig& config) {
  ModelConfig copy = config;  // described keys point into the struct, so they need one that is not const
  return keys_of(copy).to_json().at("model");
}

json to_json(const RunConfig& config) {
  RunConfig copy = config;
  return keys_of(copy).to_json();
}

void validate(const RunConfig& config) {
  ModelConfig model = config.model;
  if (model.vocab == 0) model.vocab = model.tied && model.n_out > 0 ? model.n_out : 1;
  validate(model);
  const TrainConfig& train = config.train;
  // The segment length (segment_length in train/tasks/task.h) where it is not the context itself.
  const bool own = train.sequence > 0;
  const std::int64_t row = own ? train.sequence : model.segment;
  if (model.positions && row > model.context)
    fail<ConfigError>("config: {} must not exceed model.context with learned positions: {} {}, context {}",
                      own ? "train.sequence" : "model.segment", own ? "sequence" : "segment", row,
                      model.context);
  if (config.data.name == "text" && config.data.offset == "random" && config.data.order != "stream")
    fail<ConfigError>("config: data.offset is {} with data.order {} (only a stream has an offset)",
                      config.data.offset, config.data.order);
  if (config.data.test > 0 && !(config.data.split + config.data.test < 1))
    fail<ConfigError>(
        "config: data.split and data.test leave nothing to validate: {} and {} (below 1 in all)",
        config.data.split, config.data.test);
  if (train.warmup > train.steps)
    fail<ConfigError>("config: train.warmup must not exceed train.steps: warmup {}, steps {}", train.warmup,
                      train.steps);
  if (train.min_learning_rate > train.learning_rate)
    fail<ConfigError>("config: train.min_learning_rate must not exceed train.learning_rate: {} and {}",
                      train.min_learning_rate, train.learning_rate);
}

}  // namespace eddy
