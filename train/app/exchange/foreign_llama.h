// The sizes of a Llama as Hugging Face's config.json and GGUF files say them. The names of its weights are in
// llama.toml and gguf.toml. Rotary positions turn pairs of neighbours here and in GGUF files,
// halves of a head in Hugging Face's.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/eddy/config.h"
#include "models/value_names.h"
#include "train/app/exchange/gguf.h"

namespace eddy::app {

// The forms in which a model is exported.
enum class ModelForm { pytorch, huggingface, gguf };

}  // namespace eddy::app

// Their names, in the order of the values.
template <>
struct eddy::ValueNames<eddy::app::ModelForm> {
  static constexpr const char* all[] = {"pytorch", "huggingface", "gguf"};
};

namespace eddy::app {

// Refuses a model that has no architecture in a form: those of Hugging Face are Llama's and, with a window, Mistral's;
// that of llama.cpp is Llama's.
// errors: ConfigError with the reason.
void check_exportable(const ModelConfig& model, ModelForm form);

// The config.json of a model, resolved, that check_exportable accepts.
nlohmann::json huggingface_config(const ModelConfig& model);
// The model that such a file describes: llama, or with a window llama_window. Errors call the file `name`.
// errors: ConfigError for another architecture, for what Eddy's Llama does not have, and for values of another type.
ModelConfig model_of_huggingface(const nlohmann::json& config, const std::string& name);

// The same as values of a GGUF file.
GgufValues gguf_config(const ModelConfig& model);
// errors: ConfigError as above.
ModelConfig model_of_gguf(const GgufFile& file, const std::string& name);

}  // namespace eddy::app
