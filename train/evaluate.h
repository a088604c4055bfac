// The loss of a model on tokens it is not trained on. Two forms: every window of a split once, which is exact
// and repeats to the bit; and the mean over random batches, as Kausik, "Recurrent Transformers" (2025),
// reports it, with its standard error. Every window starts without a state, dropout is off and nothing is
// recorded for a backward pass.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>

#include "models/model.h"

namespace eddy {

struct EvalResult {
  double loss = std::numeric_limits<double>::quiet_NaN();  // mean over tokens, nats
  double standard_error =
      std::numeric_limits<double>::quiet_NaN();  // of the batches' means; NaN unless random, >= 2
  std::int64_t tokens = 0;                       // predicted
  double seconds = 0;

  double bits_per_token() const;
  double perplexity() const;
};

// Told after each batch: tokens predicted so far, and in all. Returns whether to go on; when not, the result
// is that of the batches so far.
using EvalProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// The mean loss over the windows of `sequence` tokens that do not overlap, each once and in order, `batch` of
// them at a time and the rest in a smaller last batch. The tokens after the last whole window are left out.
// errors: ValueError when a size is not positive, the tokens make no window, or an id lies outside the
// vocabulary; ConfigError when the model does not give logits for every position.
EvalResult evaluate(const Model& model, std::span<const std::int32_t> tokens, std::int64_t sequence,
                    std::int64_t batch, const EvalProgress& progress = {});

// The mean loss over `batches` batches of windows that start at uniform places, which depend on the seed
// alone. The draws are others than those of training with the same seed. errors: as evaluate.
EvalResult evaluate_random(const Model& model, std::span<const std::int32_t> tokens, std::uint64_t seed,
                           std::int64_t batches, std::int64_t batch, std::int64_t sequence,
                           const EvalProgress& progress = {});

}  // namespace eddy
