// The reader of a run: what its records say, as series and as last numbers. Every page, table and picture about a run
// takes them from here, so that two views of one run cannot differ.
//
// Which evaluations compare is decided by compares() in metrics.h; the best one is of the last phase of the texts
// alone, since a loss of other texts says nothing about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "train/eval/learning_verdict.h"
#include "train/record/figures.h"
#include "train/record/metrics.h"

namespace eddy::training {

struct RunConfig;  // train/config/run_config.h

class RunSeries {
 public:
  // phase_began: the step at which the texts last grew (last_growth in train/text/text_phase.h); without it, as the
  // records say. -1: they never grew.
  explicit RunSeries(Metrics records = {}, std::optional<std::int64_t> phase_began = {});
  // Reads a metrics.jsonl.
  // errors: IoError when it cannot be read.
  static RunSeries read(const std::filesystem::path& file, std::optional<std::int64_t> phase_began = {});

  const Metrics& records() const { return records_; }
  // The records of steps, for what needs several fields of each.
  const std::vector<StepRecord>& step_records() const { return records_.steps; }
  // No step and no evaluation is recorded.
  bool empty() const { return records_.steps.empty() && records_.evals.empty(); }

  // A field of the records of steps by step, each value times `scale`.
  template <class Field>
  Series steps(Field StepRecord::*field, std::string name = {}, double scale = 1) const {
    return series_of(records_.steps, field, std::move(name), scale);
  }
  // The same with the peaks between those records.
  Series steps_and_peaks(double StepRecord::*field, std::string name = {}) const;
  // The highest value of a field; 0 without records.
  std::int64_t most(std::int64_t StepRecord::*field) const;

  // The measures beside the loss of all evaluations, in the order in which they appear.
  std::vector<std::string> measures() const;
  // "loss" or a measure beside it by step, of the evaluations that compare and have it. A value that is not finite
  // stays.
  Series evaluations(const std::string& measure, std::string name = {}) const;
  // The same of all evaluations, a series for each kind, in the order in which they appear: "validation",
  // "validation, whole split", "test".
  std::vector<Series> evaluations_by_split(const std::string& measure) const;
  // What learning_verdict looks at: the evaluations that compare of the last phase, until `last`, without those of a
  // task's own.
  std::vector<EvalPoint> points(std::int64_t last = INT64_MAX) const;

  // What promise_text says of them: in bits per byte where the last evaluation has these.
  std::string promise(std::int64_t last = INT64_MAX) const;

  // The evaluation with the lowest finite loss of those that compare, of the last phase; nullptr where there is none.
  const EvalRecord* best() const;
  // The last evaluation of the whole split "valid" beside others of a sample; nullptr where there is none.
  const EvalRecord* whole() const;

  // The median of the last tenth of the records, at most 20, at least one: that of a short run would be of its
  // beginning.
  struct FinalLoss {
    double loss = kNotMeasured;
    std::size_t records = 0;
  };
  FinalLoss final_training_loss() const;
  // What a step takes, and the tokens of a second: medians, without the first five of more than twenty records, whose
  // steps touch memory for the first time. NaN where it was not measured.
  double step_ms() const { return steady_median(&StepRecord::ms); }
  double tokens_per_second() const { return steady_median(&StepRecord::tokens_per_second); }
  // What the state gained at the last evaluation that measured it: it may come into use late, or be given up.
  std::optional<double> state_gain() const;
  // The last step of any record: steps may be logged thinly.
  std::int64_t last_step() const;

 private:
  template <class Field>
  static Series series_of(const std::vector<StepRecord>& records, Field StepRecord::*field, std::string name,
                          double scale) {
    Series series{std::move(name), {}, {}};
    for (const StepRecord& record : records)
      series.add(static_cast<double>(record.step), scale * static_cast<double>(record.*field));
    return series;
  }

  double steady_median(double StepRecord::*field) const;

  Metrics records_;
  std::int64_t phase_began_ = -1;
};

// "loss" or the name of a measure beside it; nullopt where the evaluation does not have it.
std::optional<double> measure_of(const EvalRecord& eval, const std::string& measure);

// Whether less of a measure is better: of losses, bits, perplexities and errors, by their names.
bool less_is_better(const std::string& measure);

// What `read` makes of the folder of each run. One that is damaged, or no run, is left out, and a warning says so.
// errors: that of the first folder where none is left.
template <class Read>
auto read_runs(const std::vector<std::string>& folders, const Read& read) {
  std::vector<std::invoke_result_t<const Read&, const std::string&>> runs;
  std::vector<std::string> left_out;
  std::exception_ptr first;
  for (const std::string& folder : folders) {
    try {
      runs.push_back(read(folder));
    } catch (const Error& error) {
      if (first == nullptr) first = std::current_exception();
      left_out.push_back("the run " + folder + " is left out: " + error.what());
    }
  }
  if (runs.empty() && first != nullptr) std::rethrow_exception(first);
  for (const std::string& text : left_out) add_warning(text);
  return runs;
}

// Runs whose configurations differ in train.seed alone, as indices; each run is in one group, and a run without a
// configuration (nullptr: a program's own loop) is one of its own. So is a run whose seed its group has already: a
// copy, or a second run of one seed, tells nothing of other seeds. `eddy draw` asks the losses instead
// (train/app/report/curves.cpp): a folder is one group there whatever its configurations say, so that a program's own
// runs have a band too, and a copy is found that was trained further, whose configuration differs.
std::vector<std::vector<std::size_t>> groups_by_seed(const std::vector<const RunConfig*>& configs);

}  // namespace eddy::training
