// A trained model for other programs: weights, configuration and tokenizer in a folder of their own, and a short program
// that computes the same logits with PyTorch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "train/text/tokenizer.h"

namespace eddy::app {

struct Exported {
  std::vector<std::string> files;  // names in the folder
  bool has_program = false;        // whether logits.py knows the model, and so is there
};

// Writes model.safetensors (all parameters, under their names), config.json (the keys of the model, resolved),
// tokenizer.json and tokenizer.model where there is a tokenizer, and logits.py. The folder is made; it may be there, if
// it is empty or holds what an export left that was interrupted.
// errors: IoError, for a folder that holds anything too; nothing is left of it then.
Exported export_model(const Model& model, const training::Tokenizer* tokenizer,
                      const std::filesystem::path& folder);

// Whether logits.py knows a model.
bool has_python(const std::string& model);

}  // namespace eddy::app
