// The numbers of a run while it trains: `metrics.jsonl`, one JSON object per line, append-only. A crash can
// cut at most the last line; the reader skips such a line and the writer removes it. A number that is not
// finite is written as null and read as NaN, since JSON (RFC 8259) has no other form for it. No run depends on the
// file: where it cannot be read or written, the run goes on without it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor/files/descriptor.h"
#include "train/eval/split.h"

namespace eddy::training {

inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

// {"kind":"run",...}: what was trained. It begins the file, and stands in it again where the texts grow.
struct RunRecord {
  std::int64_t step = 0;
  std::string name{};   // of the run's folder
  std::string model{};  // "family/model"
  std::string task{};   // data.name
  std::int64_t parameters = 0;
  std::int64_t state_bytes =
      0;  // that one stream keeps after a segment (stream_bytes in models/eddy/registry.h)
  double flops_per_token = kNotMeasured;  // of the forward pass
  std::string text{};                     // data.path as it was given; empty: generated
  std::string text_sha256{};              // Task::data_sha256
};

// {"kind":"step",...}: one optimizer step, or the last of several when steps are logged thinly. Where the learning rate
// follows the time, each step with which that moves is logged.
struct StepRecord {
  std::int64_t step = 0;
  double loss = kNotMeasured;
  double learning_rate = kNotMeasured;
  double grad_norm = kNotMeasured;
  double tokens_per_second = kNotMeasured;
  std::int64_t memory_bytes = 0;    // of tensors on the device, the most so far
  std::int64_t resident_bytes = 0;  // of the process, text included, the most so far; 0: on a GPU
  double ms = kNotMeasured;
  std::int64_t graph_nodes = 0;
  std::int64_t saved_bytes = 0;
  std::int64_t graph_depth = 0;
  std::int64_t tokens = 0;  // trained on so far
  double seconds = 0;       // of the run so far, with its evaluations
  // With which it was taken (train/plan/run_progress.h); NaN: that of its steps alone.
  double progress = kNotMeasured;
};

// {"kind":"again",...}: a step that is to be done again, counted from 1 (its field "of"), and its progress.
struct StepProgress {
  std::int64_t step = 0;
  double progress = kNotMeasured;
};

// {"kind":"eval",...}: a mean loss over `tokens` of the `of` targets of a split ("valid", "test"), and a field for
// each extra.
struct EvalRecord {
  std::int64_t step = 0;
  std::string split = value_name(Split::valid);
  double loss = kNotMeasured;
  std::int64_t tokens = 0;
  std::vector<std::pair<std::string, double>> metrics{};  // accuracy, bits_per_byte, ...
  bool of_task = false;                                   // made by Task::after_step
  std::int64_t of = 0;                                    // 0: not known
  // Of the whole split, at the end of a run whose other evaluations measure a sample of it.
  bool whole = false;
};

// Whether an evaluation compares with others of its run: it is of the split "valid", and not of the whole of it where
// the others are of a sample. RunSeries (run_series.h) says which of them are of the same texts.
bool compares(const EvalRecord& eval);
// Whether an evaluation compares and has a lower finite loss than `best`, which may be null.
bool is_better(const EvalRecord& eval, const EvalRecord* best);

// {"kind":"sample",...}: text the model wrote.
struct SampleRecord {
  std::int64_t step = 0;
  std::string text;
  std::int64_t words = 0, known_words = 0;  // known: those that stand in the training text
};
// "64 of its 73 words stand in the training text"; empty where it has no words.
std::string known_words_text(const SampleRecord& sample);

// {"kind":"event",...}: what a person should know later: a resume, a skipped step, why the run ended.
struct EventRecord {
  std::int64_t step = 0;
  std::string text;
};

// {"kind":"command",...}: the command line that began the run, or that resumed it at this step.
struct CommandRecord {
  std::int64_t step = 0;
  std::string text;
};

// The median of the finite values (of two middle ones the upper); NaN when there is none.
double median(std::vector<double> values);

// The records of a run, each kind in the order of the file. Of many they are a part (metrics_summary.h).
struct Metrics {
  std::optional<RunRecord> run;   // the last one; none where its line is lost
  std::vector<StepRecord> steps;  // evenly spaced, and the last 20; memory is the most up to the next one
  std::vector<StepRecord> peaks;  // of those left out between: the highest losses and gradient norms
  std::vector<EvalRecord> evals;
  std::vector<SampleRecord> samples;
  std::int64_t written_samples = 0;  // how many there were
  std::vector<EventRecord> events;   // the last ones, and how many were before
  std::int64_t earlier_events = 0;
  std::vector<CommandRecord> commands;  // the first, and of very many the last ones
  std::int64_t foreign = 0;             // whole lines that are no records
  std::string first_foreign;            // the number of the first one, and why
};

// Appends records to a file. Each record is one line in one system call, so a killed process loses nothing.
class MetricsWriter {
 public:
  // Opens the file for appending, and creates it when it is missing. A last line cut by a crash is removed.
  // errors: IoError, also when it is no regular file or a link.
  explicit MetricsWriter(const std::filesystem::path& path);

  // Appends one record.
  // errors: IoError when the disk is full or the system refuses; the file then ends with the last whole line.
  void write(const RunRecord& record);
  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void write(const SampleRecord& record);
  void write(const EventRecord& record);
  void write(const CommandRecord& record);

 private:
  void append_line(std::string line);

  std::filesystem::path path_;
  Descriptor file_;
};

// The records of a file, read in bounded memory. Unknown kinds and fields are skipped; missing fields keep their
// defaults; a last line without a newline was cut and is left out.
// errors: IoError when the file cannot be read.
Metrics read_metrics(const std::filesystem::path& path);

// The progress of the steps after `step` in their order: those that a run from there does again. None where no progress
// is recorded, or the file does not exist.
// errors: IoError.
std::vector<StepProgress> progress_after(const std::filesystem::path& path, std::int64_t step);

class MetricsSummary;

// Removes the lines of steps after `step`, and a cut last line; returns how many. A resume from a checkpoint older than
// the end of the file needs it, since the steps between run again. The other lines keep their bytes, and lines that are
// no records stay; what they hold is added to `kept`. The file is replaced atomically; it is left alone when there is
// nothing to remove and no other name (a hard link of a backup) shares it, or when it does not exist. In the place of
// the steps stand those to be done `again`, as records of `step`, so that a second kill does not lose them.
// errors: IoError.
std::int64_t drop_metrics_after(const std::filesystem::path& path, std::int64_t step, MetricsSummary& kept,
                                const std::vector<StepProgress>& again = {});

}  // namespace eddy::training
