// A run at step 0 whose weights are those of foreign files, to be trained on, evaluated or written with.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/eddy/config.h"
#include "train/app/exchange/name_map.h"
#include "train/config/run_config.h"
#include "train/text/tokenizer.h"

namespace eddy::app {

// A model in files that say what it is: an export of Eddy's, a Llama of Hugging Face's, or one in a GGUF file.
struct DescribedModel {
  ModelConfig model;
  std::map<std::string, Tensor> tensors;
  NameMap map;                                           // of their names
  std::shared_ptr<const training::Tokenizer> tokenizer;  // null where there is none
};

// Reads such a model: a folder with config.json, or a GGUF file, or the folder of one. `ids`: its tokenizer is not
// read, and is one of token ids instead.
// errors: IoError; FormatError and ConfigError for other files, and for models that are not Eddy's.
DescribedModel read_described_model(const std::string& path, bool ids = false);

struct ImportRequest {
  training::RunConfig config;
  std::string run_dir;  // made; must not exist
  // Safetensors files, indices of several (model.safetensors.index.json), or folders with either; a tensor is in one
  // file.
  std::vector<std::string> weights;
  std::string map;                            // a name map (name_map.h)
  std::optional<DescribedModel> described{};  // or: what read_described_model found in `weights`
  std::string command_line;                   // for the report
};

// Makes the run and returns what it is, in a line; before it one for each tensor that is left out as a copy.
// errors: those of train before its first step, of read_name_map, load_safetensors and mapped_weights; FormatError for
// an index that does not fit its files. Nothing is left then.
std::string import_run(const ImportRequest& request);

}  // namespace eddy::app
