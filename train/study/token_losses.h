// The loss of every single token of a text, for studies of where one model predicts better than another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"
#include "train/eval/evaluate.h"

namespace eddy {

struct TokenReading {
  std::int64_t segment = 1;  // tokens of one forward pass
  std::int64_t rows = 1;     // texts read side by side
  bool carry_state = false;  // carry the state from segment to segment; else each segment starts without one
  bool clear_state = false;  // EvalPlan::clear_state (train/eval/evaluate.h)
};

// Returns the loss in nats of each token of each text, given the tokens before it. The first token of a text
// is NaN, since nothing predicts it. Texts start without a state. The last token of a segment predicts the
// first of the next, so every model predicts the same tokens whatever its segment.
// errors: ValueError when no text has two tokens; those of the model.
std::vector<std::vector<double>> token_losses(const Model& model,
                                              const std::vector<std::span<const std::int32_t>>& texts,
                                              const TokenReading& reading, const EvalProgress& progress = {});

}  // namespace eddy
