// One row of a table on the disk: where it stands, training and measuring it, and what is kept of that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/reproduce/reproduce.h"

namespace eddy {

// What is known of a row that was trained to its end.
struct RowResult {
  RunConfig config;
  std::string ended;  // "finished", "time over", "gave up"
  std::int64_t step = 0;
  std::int64_t measured_step = 0;  // of the checkpoint that was measured
  std::int64_t tokens = 0;
  std::int64_t parameters = 0;
  double seconds = 0;
  std::string device;
  std::string measured;                  // how; empty: not measured yet
  std::map<std::string, double> values;  // by the keys of columns
  std::vector<std::string> remarks;
};

// Where a row stands.
struct RowState {
  std::filesystem::path folder;
  std::optional<RowResult> result;  // of the configuration that is wanted
  bool trained = false;             // to the end that is wanted
  bool resumable = false;
  bool begun = false;  // a run without a checkpoint: killed before its first
};

// Looks at a row's folder.
// errors: ConfigError when it holds a run of another configuration, naming the keys; IoError when it holds
// something else; FormatError for damaged files.
RowState row_state(const ReproduceTable& table, const ReproduceRow& row, const std::string& runs);

// Trains the row from where it stands; its result is kept once it came to its end.
// errors: those of train.
ReproduceEnd train_row(const ReproduceRow& row, const RowState& state, const std::string& command);

// Measures a trained row and keeps the numbers. For a row with weights_of, `weights` is the folder of that
// row's run, else its own.
// errors: those of reading the run, its data and of evaluation.
RowResult measure_row(const ReproduceTable& table, const ReproduceRow& row,
                      const std::filesystem::path& folder, const std::filesystem::path& weights);

// How a row is measured, in words that change when the numbers would.
std::string measurement_of(const ReproduceTable& table, const ReproduceRow& row);

// "section.key = value" of every key that is not at its default.
std::vector<std::string> changed_keys(const RunConfig& config);

}  // namespace eddy
