// The configurations of the four papers by name. Each family's are data: models/<family>/presets.toml.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/config.h"

namespace eddy {

// A configuration of a paper, with the number of parameters that it must have.
struct NamedConfig {
  std::string name;
  ModelConfig config;
  std::int64_t parameters;
};

// All configurations of the four papers.
const std::vector<NamedConfig>& paper_configs();

// The configuration of this name among paper_configs().
// errors: ConfigError with the nearest name, also among `others`: names that the caller knows. `program` and
// `kind` begin its text.
const ModelConfig& paper_config(const std::string& name, const char* program,
                                const char* kind = "configuration", std::vector<std::string> others = {});

}  // namespace eddy
