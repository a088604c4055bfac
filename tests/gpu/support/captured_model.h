// The models of the tests of captured generation and evaluation: segments of two windows, chunks or blocks.
#pragma once

#include <string>

#include "models/eddy/config.h"

namespace eddy::gpu_test {

inline ModelConfig captured_model(const std::string& family, const std::string& name) {
  ModelConfig config;
  config.family = family;
  config.model = name;
  config.vocab = 11;
  config.context = config.segment = 8;
  config.window = config.chunk = config.block = 4;
  config.dim = 16;
  config.heads = 2;
  config.layers = 2;
  config.states = 4;
  config.init_std = 0.3;
  return config;
}

}  // namespace eddy::gpu_test
