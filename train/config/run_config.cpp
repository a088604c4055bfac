// The description of a run's keys, and the two layouts of a config file: with tables, or flat.
#include "train/config/run_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/format.h"
#include "train/config/config_file.h"

namespace eddy {

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
  keys.add("family", c.family, "Model family", family_list()).everyday();
  keys.add("model", c.model, "Model of the family", model_list()).everyday();
  keys.add("vocab", c.vocab, "Number of token ids; 0: as many as the tokenizer has", kSizeOrZero);
  keys.add("n_out", c.n_out, "Number of classes that the head predicts; 0: vocab", kSizeOrZero)
      .read_by("-block_recurrent");
  keys.add("context", c.context, "Longest sequence with learned positions; also the default of segment",
           kSize)
      .everyday();
  keys.add("dim", c.dim, "Width of the residual stream", {1, 1 << 20}).everyday();
  keys.add("layers", c.layers, "Number of layers", {1, 1 << 16}).everyday();
  keys.add("heads", c.heads, "Number of attention heads", {1, 1 << 16}).everyday().read_by("-lstm");
  keys.add("kv_heads", c.kv_heads, "Number of heads of keys and values; 0: heads", {0, 1 << 16})
      .read_by("blockwise_recurrent");
  keys.add("head_dim", c.head_dim, "Width of a head; 0: dim / heads", {0, 1 << 20})
      .read_by("block_recurrent staircase -lstm");
  keys.add("mlp_dim", c.mlp_dim,
           "Width inside the MLP; 0: 4 dim (blockwise_recurrent: 8/3 dim, up to a multiple of 32)",
           {0, 1 << 24})
      .read_by("-lstm");
  keys.add("dropout", c.dropout, "Probability of dropping a value", kBelowOne).everyday();
  keys.add("norm_eps", c.norm_eps,
           "Number added to the variance in norms; 0: 1e-6 in block_recurrent, else 1e-5", kNonNegative)
      .read_by("-lstm");
  keys.add("block", c.block, "Positions in a block of the recurrence", kSize)
      .read_by("block_forget block_accumulate");
  keys.readers("recurrent_transformer");
  keys.add("positions", c.positions, "Whether learned positions are added to the embeddings");
  keys.add("tied", c.tied, "Whether the head uses the token table as its weight")
      .read_by("recurrent_transformer blockwise_recurrent");
  keys.add("bias", c.bias, "Whether norms and linear layers have biases");
  keys.add("activation", c.activation, "Activation of the MLP", {"gelu", "relu"});
  keys.add("readout", c.readout, "Positions that give logits", {"all", "last", "tail"});
  keys.add(
          "accumulate", c.accumulate,
          "What is added to later windows: outputs, as in the published code, or hidden states, as in equation 5",
          {"output", "hidden"})
      .oddity()
      .read_by("block_accumulate");
  keys.add("init_std", c.init_std, "Standard deviation of initial weights", kNonNegative)
      .read_by("recurrent_transformer blockwise_recurrent");
  keys.readers("");
  keys.add("segment", c.segment, "Tokens of one call; the state is detached between segments; 0: context",
           kSizeOrZero)
      .everyday();
  keys.add("window", c.window, "Number of tokens that a token sees; 0: segment", kSizeOrZero)
      .read_by("block_recurrent llama_window");
  keys.add("chunk", c.chunk,
           "Rows of the memory (memory_llama), or tokens that enter the staircase at a step", kSize)
      .read_by("memory_llama staircase -lstm");
  // block_recurrent
  keys.readers("block_recurrent/block_recurrent");
  keys.add("recurrent_layers", c.recurrent_layers, "Layers with a recurrent cell, counted from 0",
           {0, 1 << 16});
  keys.add("states", c.states, "Number of state vectors of a recurrent layer", kSize);
  keys.add("gate", c.gate, "Gate of the recurrent cell", {"fixed", "lstm"});
  keys.add("cell", c.cell, "Configuration of the recurrent cell", {"dual", "single", "skip"});
  keys.add("feedback", c.feedback, "Whether all layers read the state");
  keys.add("cache", c.cache, "Whether a segment sees keys and values of the last window before it")
      .read_by("block_recurrent -vanilla");
  keys.add("clear_state", c.clear_state, "Whether every segment begins with the initial state");
  keys.readers("block_recurrent");
  keys.add("rel_buckets", c.rel_buckets, "Number of buckets of the bias by distance", {2, 1 << 16});
  keys.add("rel_max_distance", c.rel_max_distance, "Distance from which all keys share the last bucket",
           kSize);
  keys.add("qk_norm", c.qk_norm,
           "Whether queries and keys are unit vectors; if not, queries are divided by sqrt(head_dim)");
  keys.add("qk_eps", c.qk_eps, "Number added to the squared length of queries and keys", kNonNegative)
      .oddity();
  keys.add("scale_abs", c.scale_abs, "Whether attention is scaled by the absolute value of its scale")
      .oddity();
  keys.add("logit_divisor", c.logit_divisor, "Divisor of the logits", {"sqrt_d", "sqrt_vocab", "none"})
      .oddity();
  keys.add("tanh_rule", c.tanh_rule,
           "Whether tanh is applied to the input of gates where the code or the paper says",
           {"code", "paper"})
      .oddity()
      .read_by("block_recurrent/block_recurrent");
  keys.add("z_bias", c.z_bias, "Whether the input of the gates has a bias")
      .oddity()
      .read_by("block_recurrent/block_recurrent");
  keys.add("attn_dropout", c.attn_dropout, "Probability of dropping an attention probability", kBelowOne);
  keys.add("mask_token_zero", c.mask_token_zero, "Whether token 0 of documents is padding, without a loss")
      .oddity()
      .read_by("");
  keys.readers("memorizing");
  keys.add("memory_layers", c.memory_layers, "Layers with an external memory, counted from 0", {0, 1 << 16});
  keys.add("memory_size", c.memory_size, "Number of entries of the external memory", kSizeOrZero);
  keys.add("memory_topk", c.memory_topk, "Number of entries that a query reads", kSize);
  keys.add("memory_search", c.memory_search,
           "How entries are found: the best of each bucket, or the exact best", {"bucket", "exact"});
  keys.add("memory_bias", c.memory_bias, "Whether memory layers keep the bias by distance in local attention")
      .oddity();
  // blockwise_recurrent
  keys.readers("memory_llama");
  keys.add("memory_qkv", c.memory_qkv, "Whether the memory has projections of its own",
           {"separate", "shared"});
  keys.add("memory_init", c.memory_init, "Memory of the first chunk", {"learned", "zero"});
  keys.add("memory_query", c.memory_query,
           "Whether the memory keeps its query matrix, which has no effect on the results")
      .oddity();
  keys.add("memory_ffn", c.memory_ffn, "Whether the memory passes through an MLP between chunks");
  keys.add("memory_ffn_prenorm", c.memory_ffn_prenorm, "Whether that MLP begins with a norm").oddity();
  keys.add("memory_norm", c.memory_norm, "Whether a norm follows that MLP");
  keys.add("memory_proj", c.memory_proj, "Whether a square matrix stands before that MLP").oddity();
  keys.add("detach", c.detach, "Where gradients through the memory stop", {"segment", "chunk"});
  keys.add("rope_theta", c.rope_theta, "Base of the frequencies of rotary positions", kPositive)
      .read_by("blockwise_recurrent");
  // staircase
  keys.readers("staircase -lstm");
  keys.add("steps", c.steps,
           "Number of chunks in the window, and of times that a staircase passes a chunk through the layers",
           kSize);
  keys.add("cache_after", c.cache_after, "Number of passes after which a chunk is frozen; 0: 1", kSizeOrZero)
      .read_by("cached_staircase");
  keys.add("span", c.span, "Number of distances with learned positions; 0: steps * chunk", kSizeOrZero);
  keys.add("prenorm", c.prenorm, "Whether norms stand before attention and MLP, instead of after");
  keys.add("carry", c.carry,
           "What a segment leaves to the next: what the equations say, or what the code keeps",
           {"exact", "official"})
      .oddity()
      .read_by("staircase/staircase cached_staircase");
  keys.add("cold_start", c.cold_start, "What stands before the first token: zeros, or nothing",
           {"zeros", "empty"});
  keys.add("repeats", c.repeats, "Number of times that the layers are applied", kSize)
      .read_by("ladder universal");
  keys.readers("feedback");
  keys.add("shared_kv", c.shared_kv, "Whether all layers use the keys and values of layer 0");
  keys.add("feedback_memory", c.feedback_memory, "What is remembered: a mix of all layers, or the last layer",
           {"mix", "last"});
  keys.add("feedback_self", c.feedback_self, "Whether a token sees itself").oddity();
  keys.add("feedback_carry", c.feedback_carry,
           "Whether carried memories are normalised as in the published code", {"raw", "official"})
      .oddity();
  keys.readers("staircase");
  keys.add("embed_dim", c.embed_dim, "Width of the embedding; 0: dim", kSizeOrZero).read_by("lstm");
  keys.add("emb_dropout", c.emb_dropout, "Probability of dropping a value of an embedding", kBelowOne);
  keys.add("out_dropout", c.out_dropout, "Probability of dropping a value before the head", kBelowOne);
}

void describe(ConfigKeys& keys, DataConfig& c) {
  keys.section("data");
  keys.add("name", c.name, "Task; `eddy tasks` lists them").everyday();
  keys.readers("text");
  keys.add("path", c.path, "File or folder of the data; empty: the task's own default")
      .everyday()
      .read_by("text cifar10");
  keys.add("tokenizer", c.tokenizer, "How text becomes tokens; *.model is a file of SentencePiece",
           {"char", "byte", "byte260", "*.model"})
      .everyday();
  keys.add("split", c.split, "Part of the tokens, or of the documents, to train on",
           {.low = 0, .high = 1, .low_open = true, .high_open = true})
      .everyday();
  keys.add("test", c.test, "Part of the data, at its end, that only `eval --split test` reads", kBelowOne);
  keys.add("order", c.order,
           "How a text is read: random windows, a continuous stream, or document by document",
           {"windows", "stream", "documents"})
      .everyday();
  keys.add("offset", c.offset,
           "Whether a stream's first segment begins at the start or at a random place; auto: zero for text, "
           "else random",
           {"auto", "zero", "random"})
      .read_by("text algorithm random_walk");
  keys.readers("cifar10");
  keys.add("block_min", c.block_min, "Smallest block size that a step draws; 0: model.block", kSizeOrZero);
  keys.add("block_max", c.block_max, "Largest block size that a step draws; 0: model.block", kSizeOrZero);
  keys.readers("copy selective_copy");
  keys.add("symbols", c.symbols, "Number of symbols to remember", {1, 1 << 16});
  keys.add(
          "noise", c.noise,
          "Number of noise symbols at the start of the curriculum (recall: tokens before the first question)",
          {2, 1 << 24})
      .read_by("copy selective_copy recall");
  keys.add("noise_max", c.noise_max, "Number of noise symbols at the end of the curriculum", {2, 1 << 24});
  keys.add("curriculum_every", c.curriculum_every,
           "Steps between validations that may lengthen the noise; 0: never", kCount);
  keys.add("curriculum_batches", c.curriculum_batches, "Number of batches of such a validation", kSize);
  keys.add("rate_rule", c.rate_rule,
           "Whether the learning rate follows the noise as in the code or the paper", {"code", "paper"})
      .oddity();
  keys.readers("recall");
  keys.add("secrets", c.secrets, "Number of secrets, one of which is told", {1, 1 << 16});
  keys.add("every", c.every, "Tokens from one question to the next", kSize);
  keys.add("segments", c.segments, "Number of segments of a document", {1, 1 << 16});
  keys.readers("algorithm random_walk");
  keys.add("stop_loss", c.stop_loss, "Loss at which the run ends; 0: none", kNonNegative)
      .read_by("cifar10 copy selective_copy");
  keys.add("examples_seed", c.examples_seed, "Seed of the examples", {.low = 0});
  keys.add("examples", c.examples, "Number of training examples", kExamples);
  keys.add("valid_examples", c.valid_examples, "Number of validation examples", kExamples);
  keys.add("test_examples", c.test_examples, "Number of test examples", kExamples);
  keys.add("statements", c.statements, "Number of statements of a program", {1, 1 << 20})
      .read_by("algorithm");
  keys.add("variables", c.variables, "Number of variables of a program (published: 3 and 5)", {1, 5})
      .read_by("algorithm");
  keys.readers("random_walk");
  keys.add("walk_length", c.walk_length, "Number of actions of a walk", {1, 1 << 20});
  keys.add("walk_grid", c.walk_grid, "Number of cells in a row and in a column", {1, 1024});
  keys.add("walk_torus", c.walk_torus, "Whether walking off an edge leads to the opposite one");
  keys.add("walk_random_start", c.walk_random_start,
           "Whether each walk announces a random start, instead of beginning in cell (0, 0)");
}

void describe(ConfigKeys& keys, TrainConfig& c) {
  keys.section("train");
  keys.add("steps", c.steps, "Number of optimizer steps", kCount).everyday();
  keys.add("minutes", c.minutes, "Minutes after which the run stops; 0: no limit", kNonNegative).everyday();
  keys.add("batch", c.batch, "Sequences in a batch", kSize).everyday();
  keys.add("accumulate", c.accumulate, "Batches whose gradients make one step", kSize).everyday();
  keys.add("sequence", c.sequence, "Tokens of a sequence; 0: model.segment, or else model.context",
           kSizeOrZero)
      .everyday();
  keys.add("carry_state", c.carry_state,
           "Whether the recurrent state continues from batch to batch; auto: where the task needs it",
           {"auto", "always", "never"});
  keys.add("optimizer", c.optimizer, "Optimizer", {"adamw", "adam", "adafactor"}).everyday();
  keys.add("learning_rate", c.learning_rate, "Learning rate after the warm-up", kNonNegative).everyday();
  keys.add("beta1", c.beta1, "Decay of the running mean of the gradient", kBelowOne);
  keys.add("beta2", c.beta2, "Decay of the running mean of the squared gradient", kBelowOne);
  keys.add("eps", c.eps, "Number added to the root of that mean", kPositive);
  keys.add("weight_decay", c.weight_decay, "Weight decay of matrices, multiplied by the learning rate",
           kNonNegative)
      .everyday();
  keys.add("clip", c.clip, "Largest norm of the gradient; 0: no clipping", kNonNegative).everyday();
  keys.add("warmup", c.warmup, "Steps in which the learning rate rises", kCount).everyday();
  keys.add("warmup_from", c.warmup_from,
           "Step at which warm-up starts counting: with 0, the first step has learning rate 0", {0, 1})
      .oddity();
  keys.add("schedule", c.schedule, "Learning rate after the warm-up",
           {"constant", "cosine", "linear", "rsqrt", "block_cosine"})
      .everyday();
  keys.add("min_learning_rate", c.min_learning_rate, "Learning rate at the last step", kNonNegative);
  keys.add("seed", c.seed, "Seed of weights, batches and dropout", {.low = 0}).everyday();
  keys.add("eval_every", c.eval_every, "Steps between evaluations; 0: never", kCount).everyday();
  keys.add("eval_batches", c.eval_batches, "Random batches of an evaluation; 0: the whole validation split",
           kCount)
      .everyday();
  keys.add("state_gain_batches", c.state_gain_batches,
           "Batches on which an evaluation measures what clearing the state costs; 0: none", kCount);
  keys.add("checkpoint_every", c.checkpoint_every, "Steps between checkpoints; 0: only at the end", kCount)
      .everyday();
  keys.add("keep", c.keep, "Number of checkpoints kept besides the best", kSize);
  keys.add("sample_every", c.sample_every, "Steps between samples; 0: never", kCount);
  keys.add("sample_tokens", c.sample_tokens, "Tokens of a sample; 0: no samples", kSizeOrZero);
  keys.add("log_every", c.log_every, "Steps between lines of the log", kSize);
  keys.add("max_bad_steps", c.max_bad_steps,
           "Steps in a row with a loss or gradient that is not finite, after which the run ends",
           kSizeOrZero);
  keys.add("threads", c.threads, "CPU threads; 0: all", {0, 256}).everyday();
  keys.add("device", c.device, "Where to compute", {"cpu", "cuda"}).everyday();
  keys.add("precision", c.precision,
           "Type of activations and products; parameters stay f32 in bf16. f64: CPU only, tf32: GPU only, "
           "bf16 on the CPU: fast with AVX512-BF16 or AMX",
           {"f32", "bf16", "tf32", "f64"})
      .everyday();
  keys.add("capture", c.capture, "Whether a GPU replays recorded steps; off: it launches every kernel anew",
           {"auto", "off"});
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
