// The loss of every single token of a text, for studies of where one model predicts better than another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"
#include "train/eval/evaluate.h"

namespace eddy {

struct TokenReading {
  std::int64_t segment = 1;  // tokens of one call
  std::int64_t rows = 1;     // texts at a time
  bool carry_state = false;  // from segment to segment; else each begins cold
  bool clear_state = false;  // see EvalPlan
};

// The loss in nats of each token of each text, given those before it; NaN for the first token of a text,
// which nothing predicts. Texts begin cold. The last token of a segment predicts the first of the next, so
// that every model predicts the same tokens, whatever its segment.
// errors: ValueError when no text has two tokens; those of the model.
std::vector<std::vector<double>> token_losses(const Model& model,
                                              const std::vector<std::span<const std::int32_t>>& texts,
                                              const TokenReading& reading, const EvalProgress& progress = {});

}  // namespace eddy
