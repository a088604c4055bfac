// A run at step 0 whose weights are those of foreign files, to be trained on, evaluated or written with.
#pragma once

#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace eddy::app {

struct ImportRequest {
  training::RunConfig config;
  std::string run_dir;  // made; must not exist
  // Safetensors files, indices of several (model.safetensors.index.json), or folders with either; a tensor is in one
  // file.
  std::vector<std::string> weights;
  std::string map;           // a name map (name_map.h)
  std::string command_line;  // for the report
};

// Makes the run and returns what it is, in a line; before it one for each tensor that is left out as a copy.
// errors: those of train before its first step, of read_name_map, load_safetensors and mapped_weights; FormatError for
// an index that does not fit its files. Nothing is left then.
std::string import_run(const ImportRequest& request);

}  // namespace eddy::app
