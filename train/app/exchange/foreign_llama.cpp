// Keys of both forms, written and read.
#include "train/app/exchange/foreign_llama.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"

namespace eddy::app {
namespace {

using nlohmann::json;

ModelConfig llama_of(std::int64_t window) {
  ModelConfig model;
  model.family = "blockwise_recurrent";
  model.model = window > 0 ? "llama_window" : "llama";
  model.window = window;
  return model;
}

[[noreturn]] void refuse_llama(const std::string& name, const std::string& what) {
  fail<ConfigError>("import: {} describes a model that Eddy's Llama is not: {} (another model of its kind)",
                    name, what);
}

// A value of config.json, or what stands for one that is left out or null.
// errors: ConfigError.
template <class T>
T value_at(const json& config, const std::string& name, const char* key, std::optional<T> otherwise) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    if (otherwise) return *otherwise;
    fail<ConfigError>("import: {} has no {} (the config.json of a Llama)", name, key);
  }
  const bool fits = std::is_same_v<T, bool>          ? found->is_boolean()
                    : std::is_same_v<T, std::string> ? found->is_string()
                    : std::is_integral_v<T>          ? found->is_number_integer()
                                                     : found->is_number();
  if (!fits)
    fail<ConfigError>("import: {}: {} is {}, which has the wrong type", name, key, quote_text(found->dump()));
  return found->get<T>();
}

// The shortest decimal number that is this f32: 1e-5, not 9.99999974e-06.
double short_decimal(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

}  // namespace

void check_exportable(const ModelConfig& model, ModelForm form) {
  if (form == ModelForm::pytorch) return;
  const char* const program = form == ModelForm::gguf ? "llama.cpp" : "Hugging Face";
  constexpr const char* kAnyModel = "--format pytorch writes every model";
  if (model.family != "blockwise_recurrent" || (model.model != "llama" && model.model != "llama_window"))
    fail<ConfigError>("export: {} has no architecture of {} (of Eddy's models llama is one of its own{}; {})",
                      program, model.model, form == ModelForm::gguf ? "" : ", and llama_window", kAnyModel);
  if (form == ModelForm::gguf && model.model == "llama_window")
    fail<ConfigError>(
        "export: the Llama of llama.cpp has no sliding window, and llama_window has one of {} tokens (--format huggingface "
        "keeps it; {})",
        model.window, kAnyModel);
  if (model.n_out != model.vocab)
    fail<ConfigError>(
        "export: a Llama of {} predicts its tokens, and this model has {} tokens and {} classes ({})",
        program, model.vocab, model.n_out, kAnyModel);
}

json huggingface_config(const ModelConfig& model) {
  const bool windowed = model.model == "llama_window";
  json config{{"architectures", json::array({windowed ? "MistralForCausalLM" : "LlamaForCausalLM"})},
              {"model_type", windowed ? "mistral" : "llama"},
              {"vocab_size", model.vocab},
              {"hidden_size", model.dim},
              {"intermediate_size", model.mlp_dim},
              {"num_hidden_layers", model.layers},
              {"num_attention_heads", model.heads},
              {"num_key_value_heads", model.kv_heads},
              {"head_dim", model.dim / model.heads},
              {"hidden_act", "silu"},
              {"rms_norm_eps", model.norm_eps},
              {"rope_theta", model.rope_theta},
              {"max_position_embeddings", model.context},
              {"initializer_range", model.init_std},
              {"tie_word_embeddings", model.tied},
              {"attention_dropout", 0.0},
              {"bos_token_id", nullptr},
              {"eos_token_id", nullptr},
              {"pad_token_id", nullptr},
              {"use_cache", true},
              {"torch_dtype", "float32"}};
  if (windowed) {
    config["sliding_window"] = model.window;
  } else {
    config["attention_bias"] = false;
    config["mlp_bias"] = false;
    config["rope_scaling"] = nullptr;
  }
  return config;
}

ModelConfig model_of_huggingface(const json& config, const std::string& name) {
  if (!config.is_object())
    fail<ConfigError>("import: {} is no JSON object (the config.json of a Llama)", name);
  const auto text = [&](const char* key) { return value_at<std::string>(config, name, key, std::string()); };
  const auto whole = [&](const char* key, std::optional<std::int64_t> otherwise = {}) {
    return value_at<std::int64_t>(config, name, key, otherwise);
  };
  const auto real = [&](const json& from, const char* key, double otherwise) {
    return value_at<double>(from, name, key, otherwise);
  };
  const std::string kind = text("model_type");
  if (kind != "llama" && kind != "mistral")
    refuse_llama(name, fmt::format("its model_type is {} (llama and mistral are read)", quote_text(kind)));
  ModelConfig model = llama_of(kind == "mistral" ? whole("sliding_window", 0) : 0);
  model.dim = whole("hidden_size");
  model.mlp_dim = whole("intermediate_size");
  model.layers = whole("num_hidden_layers");
  model.heads = whole("num_attention_heads");
  model.kv_heads = whole("num_key_value_heads", model.heads);
  model.vocab = model.n_out = whole("vocab_size");
  model.context = whole("max_position_embeddings", model.context);
  model.norm_eps = real(config, "rms_norm_eps", 1e-6);
  model.init_std = real(config, "initializer_range", model.init_std);
  model.tied = value_at<bool>(config, name, "tie_word_embeddings", false);
  // Version 5 of transformers keeps what concerns rotary positions in a table of its own.
  const json rope = config.value("rope_parameters", json());
  model.rope_theta = real(rope.is_object() ? rope : config, "rope_theta", model.rope_theta);
  for (const json& scaling : {rope, config.value("rope_scaling", json())})
    for (const char* const key : {"rope_type", "type"})
      if (scaling.is_object() && scaling.value(key, json("default")) != "default")
        refuse_llama(name, "its rotary positions are scaled: " + quote_text(scaling.dump()));
  for (const char* const key : {"attention_bias", "mlp_bias"})
    if (value_at<bool>(config, name, key, false)) refuse_llama(name, fmt::format("{} is true", key));
  if (const std::string activation = text("hidden_act"); !activation.empty() && activation != "silu")
    refuse_llama(name, "hidden_act is " + quote_text(activation));
  if (model.heads > 0)
    if (const std::int64_t width = whole("head_dim", model.dim / model.heads);
        width * model.heads != model.dim)
      refuse_llama(
          name, fmt::format("{} heads of {} numbers are not hidden_size, {}", model.heads, width, model.dim));
  return model;
}

GgufValues gguf_config(const ModelConfig& model) {
  const auto whole = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  return {{"general.architecture", "llama"},
          {"general.alignment", whole(32)},
          {"general.file_type", whole(0)},  // all tensors are F32
          {"general.name", "eddy llama"},
          {"llama.context_length", whole(model.context)},
          {"llama.embedding_length", whole(model.dim)},
          {"llama.block_count", whole(model.layers)},
          {"llama.feed_forward_length", whole(model.mlp_dim)},
          {"llama.attention.head_count", whole(model.heads)},
          {"llama.attention.head_count_kv", whole(model.kv_heads)},
          {"llama.attention.layer_norm_rms_epsilon", static_cast<float>(model.norm_eps)},
          {"llama.rope.dimension_count", whole(model.dim / model.heads)},
          {"llama.rope.freq_base", static_cast<float>(model.rope_theta)},
          {"llama.vocab_size", whole(model.vocab)}};
}

ModelConfig model_of_gguf(const GgufFile& file, const std::string& name) {
  const auto whole = [&](const char* key, std::optional<std::int64_t> otherwise = {}) {
    const auto* const value = gguf_value<std::uint32_t>(file.values, key);
    if (value == nullptr && !otherwise)
      fail<ConfigError>("import: {} has no {} (the GGUF file of a Llama)", name, key);
    return value == nullptr ? *otherwise : static_cast<std::int64_t>(*value);
  };
  const auto real = [&](const char* key, double otherwise) {
    const auto* const value = gguf_value<float>(file.values, key);
    return value == nullptr ? otherwise : short_decimal(*value);
  };
  const auto* const kind = gguf_value<std::string>(file.values, "general.architecture");
  if (kind == nullptr || *kind != "llama")
    refuse_llama(name, fmt::format("its general.architecture is {} (llama is read)",
                                   quote_text(kind == nullptr ? "not given" : *kind)));
  for (const char* const scaled : {"rope_freqs.weight", "blk.0.ffn_gate_exps.weight"})
    if (file.tensors.contains(scaled)) refuse_llama(name, fmt::format("it has {}", scaled));
  ModelConfig model = llama_of(0);
  model.dim = whole("llama.embedding_length");
  model.mlp_dim = whole("llama.feed_forward_length");
  model.layers = whole("llama.block_count");
  model.heads = whole("llama.attention.head_count");
  model.kv_heads = whole("llama.attention.head_count_kv", model.heads);
  model.context = whole("llama.context_length", model.context);
  model.norm_eps = real("llama.attention.layer_norm_rms_epsilon", 1e-5);
  model.rope_theta = real("llama.rope.freq_base", model.rope_theta);
  if (const auto* const type = gguf_value<std::string>(file.values, "llama.rope.scaling.type");
      type != nullptr && *type != "none")
    refuse_llama(name, "its rotary positions are scaled: " + quote_text(*type));
  if (model.heads > 0 &&
      whole("llama.rope.dimension_count", model.dim / model.heads) * model.heads != model.dim)
    refuse_llama(name, "rotary positions turn a part of a head alone");
  model.tied = !file.tensors.contains("output.weight");
  const auto table = file.tensors.find("token_embd.weight");
  model.vocab = table == file.tensors.end() || table->second.rank() == 0 ? 0 : table->second.dim(0);
  model.vocab = model.n_out = whole("llama.vocab_size", model.vocab);
  return model;
}

}  // namespace eddy::app
