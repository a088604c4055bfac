// Where a run on a text stands: how often it has read its text, and in words whether more steps will help. The rules
// are in train/run/README.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eddy::training {

// An evaluation on the validation split. All of a run are of the same tokens.
struct EvalPoint {
  std::int64_t step = 0;
  double loss = 0;
};

// `tokens` of training over the tokens of the training split; 0 where these are not known.
double epochs_in(std::int64_t tokens, std::int64_t epoch_tokens);

// "0.02 epochs", "1 epoch".
std::string epochs_text(double epochs);

// "far from done: ...", "over-fitting: ...", "at its best: ...", "getting worse: ..." or "too early to say: ...", with
// the reason. `evaluations` are in the order of their steps; that before the first step is not looked at.
std::string learning_verdict(const std::vector<EvalPoint>& evaluations, double epochs);

}  // namespace eddy::training
