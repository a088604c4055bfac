// `eddy bench staircase`: the benefit and the cost of more recurrent steps N and of the forward size C, on
// text. It measures the validation loss after a number of training steps, the time of a batch and the memory.
// Beside them stand tables 2 and 3 of Ju et al., "Staircase Attention for Recurrent Processing of Sequences"
// (2021); the page draws them like their figure 3.
//
//   RUNS/bench-staircase/MODEL-nN-cC/    the run of one point, as `eddy train` leaves it, with result.json
//
// On a GPU the folder is bench-staircase-cuda, since times of two devices do not belong in one benchmark. A
// finished point is not run again; an interrupted one is resumed.
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
  // staircase: every N with every C; cached_staircase (M = 1): the same for N > 1; ladder and universal: N
  // repeats of the stack or of the one layer; transformer_xl, feedback: one point each.
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

// One configuration, and its measurements when it is complete.
struct StaircaseBenchPoint {
  std::string name;           // name of its folder
  std::string model;          // as in StaircaseBenchOptions::models
  std::int64_t n = 0, c = 0;  // 0: not used by the model
  RunConfig config;
  bool done = false;
  std::int64_t steps = 0, parameters = 0;
  double bits = 0;                   // per character, over the whole validation split
  double batch_ms = 0, best_ms = 0;  // median and best of the training steps
  std::int64_t peak_bytes = 0;       // of live memory, evaluation included
  std::int64_t saved_bytes = 0;      // saved for backward, including the weights
  StaircaseCosts costs;              // per token

  // Returns the bytes saved for backward per token, without the weights.
  double kept_bytes_per_token() const;
};

struct StaircaseBench {
  StaircaseBenchOptions options;
  int threads = 1;
  std::vector<StaircaseBenchPoint> points;
  bool interrupted = false;
};

// Returns the points, not measured yet.
// errors: ConfigError for invalid models, sizes and lists, and for inconsistent configurations.
StaircaseBench plan_staircase_bench(const StaircaseBenchOptions& options);

// Trains and measures the points one after the other. `log` receives progress; `keep` receives the results so
// far after each point. An interruption (SIGINT, SIGTERM) ends it early, and the result holds the finished
// points.
// errors: as plan_staircase_bench; DeviceError when there is no GPU to use; ConfigError when a folder holds a
// run of another configuration or of more steps; those of training and of the data.
StaircaseBench bench_staircase(const StaircaseBenchOptions& options,
                               const std::function<void(std::string_view)>& log,
                               const std::function<void(const StaircaseBench&)>& keep);

std::string to_text(const StaircaseBench& bench);
nlohmann::json to_json(const StaircaseBench& bench);
// Returns a page with the plots of quality against time, and of quality, time and memory against C. `notes`
// are lines about the machine.
std::string to_html(const StaircaseBench& bench, const std::vector<std::string>& notes);

}  // namespace eddy
