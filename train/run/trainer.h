// The training loop: data, forward, backward, optimizer, evaluation, checkpoints, progress and report.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/text/tokenizer.h"

namespace eddy::training {

class Ranks;
struct PlannedRun;
struct RunView;

struct TrainRequest {
  RunConfig config;
  std::string run_dir;    // folder of a new run: does not exist, or has a run without a checkpoint
  std::string resume;     // or: the folder of a run to resume
  std::string init_from;  // a run or checkpoint whose parameters a new run starts from
  // The checkpoint to resume, or to initialise from: latest, best, newest-whole or step-N.
  std::string checkpoint = "latest";
  // Whether data.path is for this run alone: a task that does not read it is refused. The rows of a table share one.
  bool own_data_path = false;
  bool data_given =
      false;  // the data of the run to resume were named again: texts that are new in them are taken in
  Ranks* ranks =
      nullptr;  // the processes that share the run, of which this is the first; null: this one alone
  // Of the texts of a new run, whose weights come from elsewhere; null: one that is made as data.tokenizer says.
  std::shared_ptr<const Tokenizer> tokenizer{};
  std::string command_line;        // for the report
  std::vector<std::string> notes;  // to be said and recorded at the beginning
  // Called for a new run on a GPU before its model is made: what the program has to settle about the kernels of such
  // steps (train/app/measure/kernels/run_kernels.h). May be empty.
  std::function<void(const PlannedRun&)> choose_kernels{};
  // Called after it, for such a run too: returns a line to be noted on what another precision would bring, or nothing.
  // May be empty.
  std::function<std::string(const PlannedRun&)> precision_note{};
  // Seconds since the beginning, for a test; empty: those that pass.
  std::function<double()> clock{};
  // Called with how the run stands, from time to time and at its end: a report (train/app/report/live_report.h). What
  // it throws becomes an event, and the run goes on. May be empty.
  std::function<void(const RunView&)> show{};
};

enum class TrainEnd { finished, time_over, interrupted, too_many_bad_steps };

// Trains until the configured steps are done, the minutes are over, SIGINT, SIGTERM or SIGHUP arrives, or too
// many steps in a row were not finite; returns which. It always writes a checkpoint. Step s
// of a run depends only on (config, seed, s) and on the checkpoint before it, and, where the learning rate follows the
// time, on the progress that is recorded: a resumed run equals an unbroken one to the bit.
// errors: IoError when the run's folder exists (nothing is overwritten), or when text or checkpoint cannot be
// read; ConfigError and ValueError if sizes, vocabulary and text do not fit each other. All errors are
// found before the folder is made.
TrainEnd train(const TrainRequest& request);

}  // namespace eddy::training
