// The lists of a run's keys, and the two layouts of a config file: with tables, or flat.
#include "train/config/run_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/config/config_file.h"

namespace eddy {

namespace {

using nlohmann::json;

constexpr std::string_view kDescriptions =
#include "train/config/keys.toml"
    ;

// A key and its place in the struct.
struct Key {
  const char* name;
  ConfigField::Target target;
};

// Adds a key of the section, described by keys.toml.
void add_described(ConfigKeys& keys, const Key& key) {
  static const json sections = config_from_toml(kDescriptions, "keys.toml").value;
  const json& about = sections.at(keys.sections().back()).at(key.name);
  ConfigField field{.key = key.name, .help = about.at("help"), .target = key.target};
  field.ints = {about.value("low", field.ints.low), about.value("high", field.ints.high)};
  field.reals.low_open = about.contains("above");
  field.reals.high_open = about.contains("below");
  field.reals.low = about.value(field.reals.low_open ? "above" : "low", field.reals.low);
  field.reals.high = about.value(field.reals.high_open ? "below" : "high", field.reals.high);
  field.allowed = about.value("allowed", field.allowed);
  field.readers = about.value("readers", "");
  const std::string use = about.value("use", "");
  field.use = use == "everyday" ? KeyUse::everyday : use == "oddity" ? KeyUse::oddity : KeyUse::special;
  keys.add(std::move(field));
}
template <class... Keys>
void add_described(ConfigKeys& keys, const Key& first, const Keys&... others) {
  add_described(keys, first);
  (add_described(keys, others), ...);
}

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
  // All families.
  add_described(keys, Key{"vocab", &c.vocab}, Key{"n_out", &c.n_out}, Key{"context", &c.context},
                Key{"dim", &c.dim}, Key{"layers", &c.layers}, Key{"heads", &c.heads},
                Key{"kv_heads", &c.kv_heads}, Key{"head_dim", &c.head_dim}, Key{"mlp_dim", &c.mlp_dim},
                Key{"dropout", &c.dropout}, Key{"norm_eps", &c.norm_eps}, Key{"block", &c.block});
  // recurrent_transformer.
  add_described(keys, Key{"positions", &c.positions}, Key{"tied", &c.tied}, Key{"bias", &c.bias},
                Key{"activation", &c.activation}, Key{"readout", &c.readout},
                Key{"accumulate", &c.accumulate}, Key{"init_std", &c.init_std});
  // Several families.
  add_described(keys, Key{"segment", &c.segment}, Key{"window", &c.window}, Key{"chunk", &c.chunk});
  // block_recurrent.
  add_described(keys, Key{"recurrent_layers", &c.recurrent_layers}, Key{"states", &c.states},
                Key{"gate", &c.gate}, Key{"cell", &c.cell}, Key{"feedback", &c.feedback},
                Key{"cache", &c.cache}, Key{"clear_state", &c.clear_state},
                Key{"rel_buckets", &c.rel_buckets}, Key{"rel_max_distance", &c.rel_max_distance},
                Key{"qk_norm", &c.qk_norm}, Key{"qk_eps", &c.qk_eps}, Key{"scale_abs", &c.scale_abs},
                Key{"logit_divisor", &c.logit_divisor}, Key{"tanh_rule", &c.tanh_rule},
                Key{"z_bias", &c.z_bias}, Key{"attn_dropout", &c.attn_dropout},
                Key{"mask_token_zero", &c.mask_token_zero}, Key{"memory_layers", &c.memory_layers},
                Key{"memory_size", &c.memory_size}, Key{"memory_topk", &c.memory_topk},
                Key{"memory_search", &c.memory_search}, Key{"memory_bias", &c.memory_bias});
  // blockwise_recurrent.
  add_described(keys, Key{"memory_qkv", &c.memory_qkv}, Key{"memory_init", &c.memory_init},
                Key{"memory_query", &c.memory_query}, Key{"memory_ffn", &c.memory_ffn},
                Key{"memory_ffn_prenorm", &c.memory_ffn_prenorm}, Key{"memory_norm", &c.memory_norm},
                Key{"memory_proj", &c.memory_proj}, Key{"detach", &c.detach},
                Key{"rope_theta", &c.rope_theta});
  // staircase.
  add_described(keys, Key{"steps", &c.steps}, Key{"cache_after", &c.cache_after}, Key{"span", &c.span},
                Key{"prenorm", &c.prenorm}, Key{"carry", &c.carry}, Key{"cold_start", &c.cold_start},
                Key{"repeats", &c.repeats}, Key{"shared_kv", &c.shared_kv},
                Key{"feedback_memory", &c.feedback_memory}, Key{"feedback_self", &c.feedback_self},
                Key{"feedback_carry", &c.feedback_carry}, Key{"embed_dim", &c.embed_dim},
                Key{"emb_dropout", &c.emb_dropout}, Key{"out_dropout", &c.out_dropout});
}

void describe(ConfigKeys& keys, DataConfig& c) {
  keys.section("data");
  // Text.
  add_described(keys, Key{"name", &c.name}, Key{"path", &c.path}, Key{"tokenizer", &c.tokenizer},
                Key{"split", &c.split}, Key{"test", &c.test}, Key{"order", &c.order},
                Key{"offset", &c.offset});
  // Images, and copying.
  add_described(keys, Key{"block_min", &c.block_min}, Key{"block_max", &c.block_max},
                Key{"symbols", &c.symbols}, Key{"noise", &c.noise}, Key{"noise_max", &c.noise_max},
                Key{"curriculum_every", &c.curriculum_every},
                Key{"curriculum_batches", &c.curriculum_batches}, Key{"rate_rule", &c.rate_rule});
  // Recall.
  add_described(keys, Key{"secrets", &c.secrets}, Key{"every", &c.every}, Key{"segments", &c.segments});
  // State tracking; stop_loss is for images and copying.
  add_described(keys, Key{"stop_loss", &c.stop_loss}, Key{"examples_seed", &c.examples_seed},
                Key{"examples", &c.examples}, Key{"valid_examples", &c.valid_examples},
                Key{"test_examples", &c.test_examples}, Key{"statements", &c.statements},
                Key{"variables", &c.variables}, Key{"walk_length", &c.walk_length},
                Key{"walk_grid", &c.walk_grid}, Key{"walk_torus", &c.walk_torus},
                Key{"walk_random_start", &c.walk_random_start});
}

void describe(ConfigKeys& keys, TrainConfig& c) {
  keys.section("train");
  add_described(
      keys, Key{"steps", &c.steps}, Key{"minutes", &c.minutes}, Key{"batch", &c.batch},
      Key{"accumulate", &c.accumulate}, Key{"sequence", &c.sequence}, Key{"carry_state", &c.carry_state},
      Key{"optimizer", &c.optimizer}, Key{"learning_rate", &c.learning_rate}, Key{"beta1", &c.beta1},
      Key{"beta2", &c.beta2}, Key{"eps", &c.eps}, Key{"weight_decay", &c.weight_decay}, Key{"clip", &c.clip},
      Key{"warmup", &c.warmup}, Key{"warmup_from", &c.warmup_from}, Key{"schedule", &c.schedule},
      Key{"min_learning_rate", &c.min_learning_rate}, Key{"seed", &c.seed}, Key{"eval_every", &c.eval_every},
      Key{"eval_batches", &c.eval_batches}, Key{"state_gain_batches", &c.state_gain_batches},
      Key{"checkpoint_every", &c.checkpoint_every}, Key{"keep", &c.keep},
      Key{"sample_every", &c.sample_every}, Key{"sample_tokens", &c.sample_tokens},
      Key{"log_every", &c.log_every}, Key{"max_bad_steps", &c.max_bad_steps}, Key{"threads", &c.threads},
      Key{"device", &c.device}, Key{"precision", &c.precision}, Key{"capture", &c.capture});
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
  for (const auto& [key, text] :
       {std::pair{"path", &config.data.path}, {"tokenizer", &config.data.tokenizer}})
    if (!json_string(*text))
      fail<ConfigError>("config: data.{} is {}, which is not UTF-8 (rename the file, or name a link to it)",
                        key, quote_text(*text));
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
