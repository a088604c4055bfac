// Going back (train.rollback = "auto"): where train.max_bad_steps would end a run, it takes up the weights and moments
// of its last good checkpoint instead, and goes on with half the learning rate, three times at most.
//
//   step       ... 100 | 101 ... 130 | 131 ... 140 | 141 ...
//   it is          good  good          not finite    good again
//   weights        w                                 w, and the data of step 141
//
// Steps are counted on, so the data of the steps between are skipped, and the schedule goes on too. A carried state
// begins anew. A checkpoint is good when the loss of the step after it, which is the loss of its weights, is finite and
// at most kGoodLossRange above the lowest. Only checkpoints count that the configuration asks for, not those of an
// interrupt: so a resumed run goes back to where an unbroken one does.
#pragma once

#include <string>

#include "train/run/run_start.h"

namespace eddy::training {

inline constexpr std::size_t kMostRollbacks = 3;

// Whether a checkpoint of this step is one that the configuration asks for. `best`: it has the lowest loss so far.
bool is_planned(const TrainConfig& config, std::int64_t step, bool best);

// Notes a checkpoint of the run's present step that is about to be saved.
void note_checkpoint(ReadyRun& run, bool best);

// Notes how a step ended, by which the last checkpoint is good or not. The state has its loss already.
void note_outcome(ReadyRun& run, const StepResult& result);

struct RollbackResult {
  bool done = false;
  std::string text;  // what was done, or why the run ends; for the log and the events
};
// After train.max_bad_steps bad steps: takes the run back if train.rollback asks for it and there is a good checkpoint
// left, and counts the bad steps anew. `has_part`: the run's optimizer holds a part of the state
// (train.shard_optimizer); a whole one takes its place. The caller saves the run.
RollbackResult roll_back(ReadyRun& run, bool has_part);

}  // namespace eddy::training
