// A run at step 0 whose weights are those of foreign files, to be trained on, evaluated or written with.
#pragma once

#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace eddy::app {

struct ImportRequest {
  training::RunConfig config;
  std::string run_dir;               // made; must not exist
  std::vector<std::string> weights;  // safetensors files; a tensor is in one of them
  std::string map;                   // a name map (name_map.h)
  std::string command_line;          // for the report
};

// Makes the run and returns what it is, in a line.
// errors: those of train before its first step, of read_name_map, load_safetensors and mapped_weights. Nothing is left
// then.
std::string import_run(const ImportRequest& request);

}  // namespace eddy::app
