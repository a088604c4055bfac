// The cost of the next token against the length of what came before: time, tokens per second and bytes of
// state, for recurrent models (constant) beside the regular transformer with its cache of keys and values
// (growing). f32, random weights. A token is timed from the choice of one to the choice of the next: its id
// goes to the device, its logits come back, and the most probable is taken.
//
// The floor is the time to read the weights and the state once at the rate of memory. A GPU replays a
// recurrent model's token from a graph (captured_stream.h).
//
// A long past of the family recurrent_transformer need not be computed to be measured: the cache is filled
// with random keys and values, the position is set to the length, and some tokens are timed there, each from
// the same state. Models of the other families take all tokens from the first one on; those that are timed
// at a length begin there and go on, by whole windows, chunks or segments.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/config.h"
#include "train/bench/bench.h"
#include "train/bench/ceilings.h"

namespace eddy {

struct GenerateBenchOptions {
  std::vector<std::string> configs = {"shakespeare_unit", "shakespeare_regular_1",
                                      "shakespeare_regular_6"};  // names of the papers' configurations
  std::int64_t min_length = 0;                                   // 0: 256, on a GPU 1000
  std::int64_t max_length = 0;                                   // 0: 65,536, on a GPU 100,000
  std::int64_t batch = 1;                                        // sequences side by side
  bool capture = true;                                           // replay tokens where the device can
  std::string device = "cpu";                                    // cpu or cuda
  double seconds = 30;      // for all measurements together; each takes three tokens at least
  CeilingSizes ceilings{};  // what the rates of memory are measured with
};

struct GeneratePoint {
  std::int64_t length = 0;       // tokens before the one that is timed
  Timing token;                  // units: seconds; with blocks, the mean over one
  std::int64_t state_bytes = 0;  // the most at any place in a block
  double floor = 0;              // units: seconds
};

struct GenerateSeries {
  std::string config, model;
  std::int64_t layers = 0, parameters = 0;  // parameters without the position table, which grows with length
  std::int64_t weight_bytes = 0;            // read for every token
  bool captured = false;                    // tokens were replayed from graphs
  std::string message{};                    // why they were not, when they were to be
  std::vector<GeneratePoint> points;        // by rising length

  // How many times the first point's time the last one takes.
  double growth() const { return points.back().token.median / points.front().token.median; }
};

struct GenerateBench {
  std::string device;
  int threads = 1;
  std::int64_t batch = 1;
  std::vector<GenerateSeries> series;
  std::vector<std::string> left_out;  // what did not fit in memory, and what to lower
};

// Lengths double from min_length to max_length, which is always among them. A position table is made as long
// as it needs to be.
// errors: ConfigError for a name that is no configuration; DeviceError when there is no GPU to use;
// ValueError for lengths, batch or seconds out of range; OutOfMemoryError when the longest cache of no
// configuration fits.
GenerateBench bench_generate(const GenerateBenchOptions& options);

std::string to_text(const GenerateBench& bench);
nlohmann::json to_json(const GenerateBench& bench);
// A self-contained page with the plots and the table. `notes` are lines about the machine.
std::string to_html(const GenerateBench& bench, const std::vector<std::string>& notes);

}  // namespace eddy
