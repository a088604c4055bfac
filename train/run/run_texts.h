// What a run says of itself: as it begins, when it is resumed, and which commands go on from it.
#pragma once

#include <string>
#include <vector>

#include "train/eval/evaluate.h"
#include "train/ranks/ranks.h"
#include "train/run/run_start.h"
#include "train/run/trainer.h"

namespace eddy::training {

// "unit_forget on mine: 60048 parameters (width 52), ...".
std::string opening_text(const ReadyRun& run);
// What there is to note as it begins: products that are slow here, the notes of the request, a state that is never
// read.
std::vector<std::string> opening_notes(const ReadyRun& run, const TrainRequest& request);
// Which ranks share the run, on which hosts, and what each sends for the sum of a batch's gradients.
std::string ranks_text(const ReadyRun& run, const Ranks& ranks);
// `nothing_to_train`: all steps are done, or the task is learned.
std::string resumed_text(const ReadyRun& run, bool nothing_to_train);
// How to stop it from another terminal: the page says the same.
std::string stopping_text();
// Where the learning rate of a resumed run goes back up, at its next step, from what it was to be: its schedule spans
// the whole run, which is longer now. `before` and `now` are the progress of the last step and that of the next. Empty
// for any other step.
std::string rise_text(const ReadyRun& run, double before, double now, double seconds);
// How much of the validation split an evaluation read: "81 920 of 111 488 tokens".
std::string extent_text(const ReadyRun& run, const EvalResult& result);
// The loss and the other metrics of an evaluation, and how much it read.
std::string evaluation_text(const ReadyRun& run, const EvalResult& result);
// How a run that ended before its steps were done says so; empty for other ends.
std::string ended_text(const ReadyRun& run, TrainEnd end);
// A line for each command that goes on from a run that ended so.
std::vector<std::string> continuing_texts(const ReadyRun& run, TrainEnd end);

}  // namespace eddy::training
