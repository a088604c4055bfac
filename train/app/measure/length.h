// `eddy bench length`: time and memory of a training step against the length of the segment that gradients
// flow through. For a small model of each recurrent family it should be linear in the length; for the regular
// transformer, which stands beside them, it is not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "train/app/measure/measurement.h"
#include "train/config/run_config.h"

namespace eddy::app {

struct LengthBenchOptions {
  std::vector<std::string> models = example_models();
  std::int64_t shortest = 256, longest = 65'536;  // tokens; lengths double from one to the other
  std::int64_t dim = 64, layers = 2, batch = 1;
  double seconds = 1;             // of timed steps at each length, at least three
  std::int64_t memory_bytes = 0;  // limit of live tensors; 0: 4 GiB, on a GPU its memory
  std::int64_t product_size = 0;  // rows of the product timed beside each step; 0: the default
  std::string device = value_name(training::DeviceChoice::cpu);
  std::string precision = value_name(training::Precision::f32);
};

// Returns the configuration of a model for a segment of `length` tokens, with blocks, windows and chunks of
// 32.
// errors: ConfigError for an unknown model.
ModelConfig length_model(const LengthBenchOptions& options, const std::string& model, std::int64_t length);

// Checks sizes, lengths and models before any is measured.
// errors: those of bench_length.
void validate(const LengthBenchOptions& options);

// Times whole training steps on random tokens, starting without a state. A series ends where memory does not
// suffice and says so; the others continue. `keep` receives the results so far after every point.
// errors: ConfigError for an unknown model, lengths that the models do not support, a precision that the
// device does not have; ValueError for lengths, sizes or seconds out of range; DeviceError when there is no
// GPU to use.
Measurement bench_length(const LengthBenchOptions& options,
                         const std::function<void(const Measurement&)>& keep);

}  // namespace eddy::app
