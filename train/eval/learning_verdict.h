// Where a run on a text stands: how often it has read its text, and in words whether more steps will help. The rules
// are in train/run/README.md.
#pragma once

#include <cstdint>
#include <optional>
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

// What the curve promises for a run twice as long, from its last evaluation: L(T) - c (L(T / 4) - L(T)). The loss falls
// with a power of the steps, for small models near 0.2, so c is 0.4. Where the rate has fallen to its end, a part of
// the gain came of that, and c is less well known: that of a run twice as long as a whole was 0.1 to 0.7.
struct Promise {
  double loss = 0;
  double error = 0;  // by which it was wrong at most
};
// nullopt where no evaluation is as early as a quarter of the steps, or nothing was gained since.
std::optional<Promise> promised_loss(const std::vector<EvalPoint>& evaluations, bool rate_has_fallen);
// "a run twice as long promises 2.31 bits per byte, give or take 0.08"; empty where nothing is promised. bits_per_nat
// turns losses into bits per byte; NaN: the loss is said.
std::string promise_text(const std::vector<EvalPoint>& evaluations, bool rate_has_fallen,
                         double bits_per_nat);

// "far from done: ...", "over-fitting: ...", "at its best: ...", "getting worse: ..." or "too early to say: ...", with
// the reason. `evaluations` are in the order of their steps; that before the first step is not looked at. Where more
// steps may help, `promise` (promise_text) says how much.
std::string learning_verdict(const std::vector<EvalPoint>& evaluations, double epochs,
                             const std::string& promise = {});

}  // namespace eddy::training
