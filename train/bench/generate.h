// `eddy bench generate`: the cost of the next token against the number of tokens before it, as time, tokens
// per second and bytes of state. Recurrent models (constant cost) stand beside the regular transformer with
// its key-value cache (growing cost). f32, random weights. A token is timed from the choice of one to the
// choice of the next: its id goes to the device, its logits come back, and the most probable token is taken.
//
//   floor = (bytes of weights + bytes of state) / bandwidth of memory
//
// A GPU replays the token of a recurrent model from a graph (train/step/recorder.h).
//
// Models of the family recurrent_transformer need not compute the tokens before. The cache is filled with
// random keys and values, the position is set to the length, and some tokens are timed there, each from the
// same state. Models of the other families read all tokens from the first one on; timed tokens start at the
// length and continue by whole windows, chunks or segments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/config.h"
#include "train/bench/bench.h"
#include "train/bench/ceilings.h"
#include "train/bench/measurement.h"

namespace eddy {

struct GenerateBenchOptions {
  std::vector<std::string> configs = {"shakespeare_unit", "shakespeare_regular_1",
                                      "shakespeare_regular_6"};  // names of configurations of the papers
  std::int64_t min_length = 0;                                   // 0: 256, on a GPU 1000
  std::int64_t max_length = 0;                                   // 0: 65,536, on a GPU 100,000
  std::int64_t batch = 1;                                        // sequences generated side by side
  bool capture = true;         // replay tokens from graphs where the device supports it
  std::string device = "cpu";  // cpu or cuda
  double seconds = 30;         // for all measurements together; each times at least three tokens
  CeilingSizes ceilings{};     // sizes of the arrays that memory is measured with
};

struct GeneratePoint {
  std::int64_t length = 0;       // tokens before the timed one
  Timing token;                  // units: seconds; for a model with blocks, the mean over one block
  std::int64_t state_bytes = 0;  // the largest at any position of a block
  double floor = 0;              // units: seconds
};

struct GenerateSeries {
  std::string config, model;
  std::int64_t layers = 0, parameters = 0;  // without the position table, which grows with the length
  std::int64_t weight_bytes = 0;            // read for every token
  bool captured = false;                    // tokens were replayed from graphs
  std::string message{};                    // why they were not, although options.capture asked for it
  std::vector<GeneratePoint> points;        // by increasing length

  // Returns the time of a token at the last point over that at the first.
  double growth() const { return points.back().token.median / points.front().token.median; }
};

struct GenerateBench {
  std::string device;
  int threads = 1;
  std::int64_t batch = 1;
  std::vector<GenerateSeries> series;
  std::vector<std::string> left_out;  // configurations that did not fit in memory, and what to lower
};

// Measures all configurations at lengths that double from min_length; max_length is always the last. A
// position table is made as long as it needs to be.
// errors: ConfigError for an unknown configuration; DeviceError when there is no GPU to use; ValueError for
// lengths, batch or seconds out of range; OutOfMemoryError when no configuration fits with its longest cache.
GenerateBench bench_generate(const GenerateBenchOptions& options);

Measurement measurement_of(const GenerateBench& bench);

}  // namespace eddy
