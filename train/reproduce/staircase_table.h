// `eddy bench staircase`: what more recurrent steps N and another forward size C cost and bring, on text: the
// validation loss after so many training steps, the time of a batch and the memory, beside the numbers of
// tables 2 and 3 of Ju et al., "Staircase Attention for Recurrent Processing of Sequences" (2021), and drawn
// as their figure 3.
//
//   RUNS/bench-staircase/MODEL-nN-cC/    the run of one point, as `eddy train` leaves it, with result.json
//
// On a GPU the folder is bench-staircase-cuda: times of two devices are two benchmarks.
// A point that is done is not done again, one that was interrupted is resumed.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "train/config/run_config.h"
#include "train/reproduce/staircase_costs.h"

namespace eddy {

struct StaircaseBenchOptions {
  // staircase: all N times C; cached_staircase (M = 1): the same where N > 1; ladder and universal: N times
  // the stack or the one layer; transformer_xl, feedback: one point each.
  std::vector<std::string> models = {"transformer_xl", "staircase", "cached_staircase"};
  std::vector<std::int64_t> n = {1, 2, 4};     // recurrent steps
  std::vector<std::int64_t> c = {16, 32, 64};  // forward size, in tokens; each divides the segment
  std::string data;                            // file or folder of text; empty: the text task's own
  std::string tokenizer = "char";              // char or byte
  std::int64_t steps = 200, batch = 16, segment = 128, dim = 64, layers = 2, heads = 4;
  double learning_rate = 2e-3;
  std::int64_t seed = 1337;
  std::string device = "cpu";  // cpu | cuda
  std::string runs = "runs";
};

// One configuration, and what was measured of it when it came to its end.
struct StaircaseBenchPoint {
  std::string name;           // of its folder
  std::string model;          // as in the options
  std::int64_t n = 0, c = 0;  // 0: the model has none
  RunConfig config;
  bool done = false;
  std::int64_t steps = 0, parameters = 0;
  double bits = 0;                   // per character, over the whole validation split
  double batch_ms = 0, best_ms = 0;  // median and best of the training steps
  std::int64_t peak_bytes = 0;       // of live memory, evaluation included
  std::int64_t saved_bytes = 0;      // kept for the backward pass, with the weights
  StaircaseCosts costs;              // of a token

  // Kept for the backward pass per token, without the weights.
  double kept_bytes_per_token() const;
};

struct StaircaseBench {
  StaircaseBenchOptions options;
  int threads = 1;
  std::vector<StaircaseBenchPoint> points;
  bool interrupted = false;
};

// The points, none measured.
// errors: ConfigError for models, sizes and lists that make no sense, and for configurations that contradict
// themselves.
StaircaseBench plan_staircase_bench(const StaircaseBenchOptions& options);

// Trains and measures the points one after the other; `says` is told which, and `after` is called with what
// there is after each. An interruption (SIGINT, SIGTERM) ends it; what is done is in the result.
// errors: as plan_staircase_bench; DeviceError when there is no GPU to use; ConfigError when a folder holds a
// run of another configuration or of more steps; those of training and of the data.
StaircaseBench bench_staircase(const StaircaseBenchOptions& options,
                               const std::function<void(std::string_view)>& says,
                               const std::function<void(const StaircaseBench&)>& after);

std::string to_text(const StaircaseBench& bench);
nlohmann::json to_json(const StaircaseBench& bench);
// A page with the plots of quality against time, and of both and the memory against C; `notes` are lines
// about the machine.
std::string to_html(const StaircaseBench& bench, const std::vector<std::string>& notes);

}  // namespace eddy
