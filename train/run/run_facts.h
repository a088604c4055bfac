// What a run tells its records and its report: what it trains, how far it is in its text, and where it stands.
#pragma once

#include <cstdint>
#include <string>

#include "train/record/metrics.h"
#include "train/record/metrics_summary.h"
#include "train/run/run_start.h"

namespace eddy::training {

// What follows from a configuration alone: the model, its sizes and costs, the text.
// errors: those of the registry for a model that it cannot make.
RunRecord facts_of(const RunConfig& config);
// The record that says what a run trains, at its present step.
RunRecord record_of(const ReadyRun& run);

// How often the run has read its text; 0 where it has none.
double epochs_of(const ReadyRun& run);
// Whether more steps will help; empty for a task without a text, and before the first step.
std::string learning_verdict_of(const ReadyRun& run, const MetricsSummary& records);

// The step at which the run's present texts began: -1 for the first ones.
std::int64_t phase_began(const ReadyRun& run);

}  // namespace eddy::training
