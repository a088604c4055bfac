// `eddy bench speed`: times the training step of models of all families, beside figures given for PyTorch
// on the same kind of GPU. A step is forward, loss, backward, clipping and AdamW in bf16 without dropout,
// replayed from a graph. Models with a state carry it from step to step.
//
//   RUNS/speed-SCALE/result.json   rows with the measured, given and wanted numbers, updated after each row; "measured"
//                                  has the table, with a profile that of all rows by op, as docs/measured/ keeps them
//                   /index.html    the same as a page
//
// Rows that an earlier call measured stay in both files if scale, device, precision, machine and build are
// the same.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/app/measure/scale.h"
#include "train/app/measure/step.h"

namespace eddy::app {

// A figure as it was given: milliseconds of a step, and its original wording.
struct SpeedFigure {
  double ms = 0;  // 0: none
  std::string text{};
};

struct SpeedRow {
  std::string name;  // in --rows
  std::string title;
  ModelConfig model;
  std::int64_t batch = 0, sequence = 0;
  SpeedFigure eager{}, best{}, aim{};  // PyTorch as published or eager; PyTorch at its best; Eddy's target
};

// Returns the rows of the table. `small`: every row shrunk to a size for a CPU, without figures, since those
// belong to the full sizes.
std::vector<SpeedRow> speed_rows(bool small);

struct SpeedOptions {
  std::vector<std::string> rows;                 // names; empty: all
  std::string scale = value_name(Scale::paper);  // or small
  std::string device{};                          // cpu | cuda; empty: cuda, at scale small cpu
  std::string runs = "runs/reproduce";
  double seconds = 0;  // of timed steps for each row; 0: 10, at scale small the fewest possible
  bool profile = false;
  std::string command{};  // what was called, for the files
  // For tests: sizes of the product and the copies that floors are made of; 0: the defaults of the benchmark.
  std::int64_t product_size = 0, memory_bytes = 0;
};

// Returns the rows that the options name.
// errors: ConfigError for an unknown row or scale.
std::vector<SpeedRow> wanted_speed_rows(const SpeedOptions& options);

struct SpeedResult {
  SpeedRow row;
  std::optional<StepBench> bench;  // none when the row failed
  std::string failure{};           // why
};

// Measures the rows one after the other and returns their results. `log` receives each row and, at the end,
// the table. A row that fails, for example for lack of memory, is reported and the others continue.
// errors: ConfigError for an unknown row, scale or device, and for the sizes of the paper on a CPU without
// --rows; DeviceError when there is no GPU, with alternatives; IoError for the files.
std::vector<SpeedResult> bench_speed(const SpeedOptions& options,
                                     const std::function<void(std::string_view)>& log);

}  // namespace eddy::app
