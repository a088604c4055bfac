// Tuned values of a row: every combination of the values of [tune] is trained for a part of the row's steps, the better
// half for twice as many, and so on, until one is left (successive halving). N combinations take rounds of
//
//   N runs of S / 2^R steps, N / 2 of S / 2^(R-1), ..., 2 of S / 2        R = log2(N), S the steps of the row
//
// which is (R + 1) / 2 times S where a run can go on, and R times S where its schedule depends on the number of
// steps. No round is shorter than the warmup. What is tried is judged by the evaluations of the split valid alone.
// One that diverges is a result too: it is worse than all others.
//
// A trial is a run with its result.json, in tune/ROW/every-STEPS/VALUES below the folder of the table: an interrupted
// one is resumed, and a changed grid keeps those that it has. No other file is kept: what won follows from the
// results.
//
// source: Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization" (2016).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/app/reproduce/reproduce.h"

namespace eddy::app {

// How far the tuning of a row is, read from its trials. `row` is one of the table's, of any seed.
// errors: ConfigError when trials are of another configuration; those of reading results.
RowTuning tuning_of(const ReproduceTable& table, const ReproduceRow& row, const std::string& runs);

// The row that a trial trains.
ReproduceRow trial_row(const ReproduceTable& table, const ReproduceRow& row, const Trial& trial);

// Trains a trial, or goes on with it, and keeps its number. `ranks`: as in run.h.
// errors: those of training.
ReproduceEnd run_trial(const ReproduceTable& table, const ReproduceRow& row, const Trial& trial,
                       const std::string& runs, const std::string& command, training::Ranks* ranks);

// Sets the values of the tuned keys, and the name of the folder that follows from them.
void set_tuned_values(const ReproduceTable& table, ReproduceRow& row, const std::vector<std::string>& values);

// "learning_rate 0.003, dropout 0.1".
std::string tuned_text(const ReproduceTune& tune, const std::vector<std::string>& values);

// The keys whose best value is the lowest or the highest number that was tried: a wider grid may find better ones.
std::vector<std::string> keys_on_border(const ReproduceTune& tune, const std::vector<std::string>& best);

}  // namespace eddy::app
