// A trained model for other programs, in a folder of its own: in Eddy's form, with a short program that computes the
// same logits with PyTorch, or in that of Hugging Face or of llama.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "train/app/exchange/foreign_llama.h"
#include "train/app/exchange/name_map.h"
#include "train/text/tokenizer.h"

namespace eddy::app {

struct Exported {
  std::vector<std::string> files;  // names in the folder
  bool has_program = false;        // whether logits.py knows the model, and so is there
};

// Makes the folder, which may be there, if it is empty or holds what an export left that was interrupted, and writes:
//
//   eddy         model.safetensors (all parameters, under their names), config.json (the keys of the model, resolved),
//                tokenizer.json and tokenizer.model where there is a tokenizer, and logits.py
//   huggingface  model.safetensors, config.json, and the tokenizer's files
//   gguf         model.gguf
//
// errors: IoError, for a folder that holds anything too; ConfigError for a model or a tokenizer that the form does not
// have. Nothing is left of it then.
Exported export_model(const Model& model, const training::Tokenizer* tokenizer,
                      const std::filesystem::path& folder, ModelForm form = ModelForm::pytorch);

// The names of Llama weights in a form, of llama.toml and gguf.toml.
NameMap llama_names(ModelForm form);

// Whether logits.py knows a model.
bool has_python(const std::string& model);

}  // namespace eddy::app
