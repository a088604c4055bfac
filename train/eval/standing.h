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

// `tokens` of training over the `pass` tokens of the training split; 0 where that is not known.
double passes_over(std::int64_t tokens, std::int64_t pass);

// "0.02 passes over the text", "1 pass over the text".
std::string passes_text(double passes);

// "far from done: ...", "over-fitting: ...", "at its best: ...", "getting worse: ..." or "too early to say: ...", with
// the reason. `evaluations` are in the order of their steps; that before the first step is not looked at.
std::string standing_text(const std::vector<EvalPoint>& evaluations, double passes);

}  // namespace eddy::training
