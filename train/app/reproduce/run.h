// One row of a table on disk: its progress, how to train and measure it, and the results that are kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/app/reproduce/reproduce.h"

namespace eddy::app {

// How a training ended that met too many losses which were not finite.
inline constexpr const char* kGaveUp = "gave up on losses that were not finite";

// The result of a row that was trained to its end.
struct RowResult {
  training::RunConfig config;
  std::string ended;  // "finished", "time over" or kGaveUp
  std::int64_t step = 0;
  std::int64_t measured_step = 0;  // step of the measured checkpoint
  std::int64_t tokens = 0;
  std::int64_t parameters = 0;
  double seconds = 0;
  std::string device;
  std::string measured;                  // how it was measured (measurement_of); empty: not yet
  std::map<std::string, double> values;  // by ReproduceColumn::key
  std::vector<std::string> remarks;
};

// The progress of a row.
struct RowState {
  std::filesystem::path folder;
  std::optional<RowResult> result;  // with the configuration of the table
  bool trained = false;             // to the end that the configuration asks for
  bool resumable = false;
  bool begun = false;                    // a run that was killed before its first checkpoint
  std::map<std::string, double> kept{};  // the values of its last result, which may be of fewer steps
};

// Whether a run may go on to more steps than it was to have: no rate of its schedule follows from their number.
bool can_have_more_steps(const training::TrainConfig& train);

// The keys by which a run is not one of the wanted configuration, with both values: what a continuation may have
// otherwise is left out.
std::vector<std::string> contradictions(training::RunConfig run, training::RunConfig wanted);

// Returns the progress of a row, read from its folder.
// errors: ConfigError when it holds a run of another configuration, naming the keys; IoError when it holds
// something else; FormatError for damaged files.
RowState row_state(const ReproduceTable& table, const ReproduceRow& row, const std::string& runs);

// `ranks` of the next two: the processes that share the work, or null.
// Trains the row, continuing from its last checkpoint if there is one. The result is kept when the row
// reaches its end.
// errors: those of train.
ReproduceEnd train_row(const ReproduceRow& row, const RowState& state, const std::string& command,
                       training::Ranks* ranks);

// Adds a number to the result of a trained row, for later calls: a training that goes on keeps it.
// errors: those of reading and writing the result.
void keep_value(const std::filesystem::path& folder, const std::string& key, double value);

// Measures a trained row and keeps the numbers; returns nothing, and keeps none, when stop_requested() ends it.
// `weights` is the folder of the run whose
// weights are used: that of weights_of, or else the row's own.
// errors: those of reading the run, its data and of evaluation.
std::optional<RowResult> measure_row(const ReproduceTable& table, const ReproduceRow& row,
                                     const std::filesystem::path& folder,
                                     const std::filesystem::path& weights, training::Ranks* ranks);

// Returns a text that is the same for rows that may share a task: it has what a task reads of a configuration.
std::string task_key(training::RunConfig config);

// Returns a text that says how a row is measured; it changes whenever the numbers would.
std::string measurement_of(const ReproduceTable& table, const ReproduceRow& row);

// Returns "section.key = value" for every key that is not at its default.
std::vector<std::string> changed_keys(training::RunConfig config);

}  // namespace eddy::app
