// The loss of a model on tokens it is not trained on. `evaluate_batches` runs whatever batches a task gives,
// with or without a state carried between them. On a plain run of tokens there are two forms besides: every
// window of a split once, which is exact and repeats to the bit; and the mean over random batches, as Kausik,
// "Recurrent Transformers" (2025), reports it, with its standard error; their windows start without a state.
// Dropout is off and nothing is recorded for a backward pass.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"
#include "train/step/batch.h"

namespace eddy {

struct EvalOptions {
  std::string split = "valid";  // a task's own word for a part of its data: valid, train, test, all
  std::int64_t batches = 0;     // 0: all of the split once; else so many batches
  std::int64_t batch = 64;      // rows at a time
  std::uint64_t seed = 1337;    // of random batches
  bool clear_state = false;     // what recurrence carries begins anew at every segment (see EvalPlan)
  bool by_position = false;     // losses by position are kept
  bool capture = true;          // on a GPU, batches are recorded and replayed
  // Of texts: above 0, the windows overlap, each starts cold, and only its last `score_last` targets count,
  // so that windows of any length are judged on the same tokens. The first window ends before token `from`;
  // 0: as early as one can.
  std::int64_t score_last = 0;
  std::int64_t from = 0;
};

struct EvalResult {
  double loss = std::numeric_limits<double>::quiet_NaN();  // mean over scored targets, nats
  double standard_error =
      std::numeric_limits<double>::quiet_NaN();  // of the batches' means; NaN unless random, >= 2
  std::int64_t tokens = 0;                       // scored targets
  double seconds = 0;
  // Other numbers by name, such as accuracy or bits_per_byte; in the order they are to be shown.
  std::vector<std::pair<std::string, double>> extras;
  // With EvalOptions::by_position: the sum of losses, and how many, of the targets that lie so many places
  // behind the beginning of what is read: a document, a stream, a window.
  std::vector<double> position_loss;
  std::vector<std::int64_t> position_count;
  bool carried = false;                                     // whether a state went from any batch to the next
  std::vector<std::pair<std::string, double>> diagnostics;  // of the model and the last state carried
  std::string uncaptured;  // why a GPU ran batches one by one; empty when it replayed them, or there were few

  double bits_per_token() const;
  double perplexity() const;
  // Counts the loss of a target at a position.
  void add_position(std::int64_t position, double nats);
};

// Told after each batch: tokens predicted so far, and in all. Returns whether to go on; when not, the result
// is that of the batches so far.
using EvalProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// How evaluate_batches goes about it.
struct EvalPlan {
  bool carry_state = false;
  bool clear_state = false;  // before each batch: Model::without_recurrence of the state carried
  bool count_right = false;  // adds "accuracy": the part of the scored targets with the highest logit
  bool random = false;       // the batches are draws: adds the standard error of the mean of their losses
  bool capture = true;       // as EvalOptions::capture
  std::int64_t total = 0;    // scored targets in all, for `progress`; 0 when not known
  // Sees each batch with its losses, [batch * rows] nats, 0 where not scored; may be empty.
  std::function<void(const Batch& batch, std::span<const double> losses)> see;
};

// The mean loss over all scored targets of the batches that `next` puts out until it returns false. Without
// any scored target the loss is NaN.
// errors: those of the model and of `next`.
EvalResult evaluate_batches(const Model& model, const std::function<bool(Batch& batch)>& next,
                            const EvalPlan& plan, const EvalProgress& progress = {});

// The mean loss over the windows of `sequence` tokens that do not overlap, each once and in order, `batch` of
// them at a time and the rest in a smaller last batch. The tokens after the last whole window are left out.
// errors: ValueError when a size is not positive, the tokens make no window, or an id lies outside the
// vocabulary; ConfigError when the model does not give logits for every position.
EvalResult evaluate(const Model& model, std::span<const std::int32_t> tokens, std::int64_t sequence,
                    std::int64_t batch, const EvalProgress& progress = {}, const EvalPlan& plan = {});

// The mean loss over `batches` batches of windows that start at uniform places, which depend on the seed
// alone. The draws are others than those of training with the same seed.
// errors: as evaluate.
EvalResult evaluate_random(const Model& model, std::span<const std::int32_t> tokens, std::uint64_t seed,
                           std::int64_t batches, std::int64_t batch, std::int64_t sequence,
                           const EvalProgress& progress = {}, const EvalPlan& plan = {});

// The mean loss over the last options.score_last targets of windows of `sequence` tokens, whose ends lie
// score_last tokens apart: every target from the first window's on counts once. With options.batches windows
// are drawn at random, as options.seed gives; else all come in order. Adds the accuracy.
// source: Liang, "Block-wise recurrent transformer" (2024), its evaluation by length.
// errors: as evaluate; ValueError when score_last exceeds the sequence or no text has room for a window.
EvalResult evaluate_last(const Model& model, const std::vector<std::span<const std::int32_t>>& texts,
                         std::int64_t sequence, const EvalOptions& options, const EvalProgress& progress = {},
                         const EvalPlan& plan = {});

}  // namespace eddy
