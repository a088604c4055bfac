// What a run records and says while it trains: metrics.jsonl, the event files of TensorBoard, the records in memory for
// its page, and the progress display. No run depends on them: where a file cannot be written, that is said once, and
// the run goes on.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/record/event_file.h"
#include "train/record/metrics.h"
#include "train/record/metrics_summary.h"
#include "train/record/progress.h"

namespace eddy::training {

// The numbers of a record that TensorBoard shows, by name; none for other kinds of records.
std::vector<std::pair<std::string, double>> numbers_of(const StepRecord& record);
std::vector<std::pair<std::string, double>> numbers_of(const EvalRecord& record);
template <class Record>
std::vector<std::pair<std::string, double>> numbers_of(const Record&) {
  return {};
}

class RunLog {
 public:
  // As Progress.
  RunLog(std::FILE* out, const ProgressOptions& options, Clock::time_point start)
      : progress_(out, options, start) {}

  // Takes up metrics.jsonl in a run's folder. Of a resumed run the records up to `step` are kept.
  void open_metrics(const std::filesystem::path& folder, bool resumed, std::int64_t step);
  // Begins an event file in that folder.
  void open_board(const std::filesystem::path& folder, std::int64_t step);

  // Writes a record, and keeps it.
  template <class Record>
  void record(const Record& what) {
    keep(what);
    try {
      if (metrics_) metrics_->write(what);
      if (board_) board_->write(what.step, numbers_of(what));
      is_recording_ = true;
    } catch (const IoError& error) {
      if (is_recording_) say(fmt::format("warning: not recorded: {}", error.what()));
      is_recording_ = false;
    }
  }
  // Keeps a record in memory alone.
  template <class Record>
  void keep(const Record& what) {
    records_.add(what);
  }
  // Prints a text above the progress line.
  void say(const std::string& text) { progress_.message(text); }

  const MetricsSummary& records() const { return records_; }
  // Of a resumed run: the steps after the one it goes on from that had been recorded.
  const std::vector<StepProgress>& steps_done_again() const { return done_again_; }
  Progress& progress() { return progress_; }

 private:
  Progress progress_;
  MetricsSummary records_;
  std::vector<StepProgress> done_again_;
  std::optional<MetricsWriter> metrics_;
  std::optional<EventFile> board_;
  bool is_recording_ = true;  // the last record was written
};

}  // namespace eddy::training
