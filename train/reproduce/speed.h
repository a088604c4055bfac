// `eddy reproduce speed`: the training step of models of all families, beside figures given for PyTorch on a
// GPU of the same kind. A step is forward, loss, backward, clipping and AdamW in bf16 without dropout,
// replayed from a graph; the state goes on from step to step where a model carries one.
//
//   RUNS/speed-SCALE/result.json    rows with what was measured, given and wanted, after every row
//                   /index.html     the same as a page
//
// Rows that an earlier call measured under equal conditions, of scale, device, precision, machine and build,
// stay in both files beside the new ones.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/bench/step.h"

namespace eddy {

// A figure as it was given: milliseconds of a step, and the words it came in.
struct SpeedFigure {
  double ms = 0;  // 0: none
  std::string text{};
};

struct SpeedRow {
  std::string name;  // in --rows
  std::string title;
  ModelConfig model;
  std::int64_t batch = 0, sequence = 0;
  SpeedFigure eager{}, best{}, aim{};  // PyTorch as published or eager, at its best; what Eddy is to reach
};

// The table; `small`: every row shrunk to what a CPU does in moments, without figures, since they are
// others'.
std::vector<SpeedRow> speed_rows(bool small);

struct SpeedOptions {
  std::vector<std::string> rows;  // names; empty: all
  std::string scale = "paper";    // paper | small
  std::string device{};           // cpu | cuda; empty: cuda, at scale small cpu
  std::string runs = "runs/reproduce";
  double seconds = 0;  // of timed steps for each row; 0: 10, at scale small as few as there may be
  bool profile = false;
  // For tests: of the product and the copies that floors are made of; 0: the benchmark's own.
  std::int64_t product_size = 0, memory_bytes = 0;
};

struct SpeedResult {
  SpeedRow row;
  std::optional<StepBench> bench;  // none when the row failed
  std::string failure{};           // why
};

// Measures the rows one after the other; `says` is told of each, and the table at the end. A row that fails,
// for want of memory say, is reported and the others go on. Returns the rows' results.
// errors: ConfigError for an unknown row, scale or device, and for the paper's sizes on a CPU without --rows;
// DeviceError when there is no GPU, with what can be done instead; IoError for the files.
std::vector<SpeedResult> reproduce_speed(const SpeedOptions& options,
                                         const std::function<void(std::string_view)>& says);

}  // namespace eddy
