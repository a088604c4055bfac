// `eddy bench generate`: the cost of the next token against the number of tokens before it, as time, tokens
// per second and bytes of state. Recurrent models (constant cost) stand beside the regular transformer with
// its key-value cache (growing cost). Random weights. A token is timed from the choice of one to the
// choice of the next: its id goes to the device, its logits come back, and the most probable token is taken.
//
//   floor = (bytes of weights + bytes of state) / bandwidth of memory
//
// A GPU replays the token of a recurrent model from a graph (train/step/recorder.h).
//
// Models of the family recurrent_transformer need not compute the tokens before. The cache is filled with
// one number, the position is set to the length, and some tokens are timed there, each from the
// same state. Models of the other families read all tokens from the first one on; timed tokens start at the
// length and continue by whole windows, chunks or segments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/app/measure/ceilings.h"
#include "train/app/measure/measurement.h"
#include "train/config/run_config.h"

namespace eddy::app {

struct GenerateBenchOptions {
  std::vector<std::string> configs = {"shakespeare_unit", "shakespeare_regular_1",
                                      "shakespeare_regular_6"};  // names of configurations of the papers
  std::int64_t min_length = 0;                                   // 0: 256, on a GPU 1000
  std::int64_t max_length = 0;                                   // 0: 65,536, on a GPU 100,000
  std::int64_t batch = 1;                                        // sequences generated side by side
  bool capture = true;  // replay tokens from graphs where the device supports it
  std::string device = value_name(training::DeviceChoice::cpu);
  std::string precision = value_name(training::Precision::f32);
  double seconds = 30;            // for all measurements together; each times at least three tokens
  std::int64_t memory_bytes = 0;  // limit of live tensors; 0: what the machine has free, on a GPU its memory
  CeilingSizes ceilings{};        // sizes of the arrays that memory is measured with
};

// Measures all configurations at lengths that double from min_length; max_length is always the last. A
// position table is made as long as it needs to be.
// errors: ConfigError for an unknown configuration, and for a precision that the device does not have; DeviceError
// when there is no GPU to use; ValueError for lengths, batch or seconds out of range; OutOfMemoryError when no
// configuration fits with its longest cache.
Measurement bench_generate(const GenerateBenchOptions& options);

}  // namespace eddy::app
