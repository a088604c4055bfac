// The loss of a model on held-out tokens, without dropout. Nothing is recorded for a backward pass. There are
// four ways:
//
//   evaluate_batches   the batches that a task gives, with or without a state carried between them
//   evaluate           every window of a split once, or a fixed sample of them: bit-identical each time
//   evaluate_random    the mean over random windows with its standard error, as Kausik, "Recurrent
//                      Transformers" (2025), reports it
//   evaluate_last      only the last targets of each window, to compare windows of different lengths
//
// In the last three, every window starts without a state.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/eddy/registry.h"
#include "train/eval/split.h"
#include "train/step/batch.h"
#include "train/step/recorder.h"

namespace eddy::training {

class Ranks;

// How the rows of a batch are cut and shared (train/eval/eval_parts.h).
// Losses of other numbers of parts differ in their last bits.
struct EvalShare {
  std::int64_t parts = 1;  // at most, a power of two: those of training, train.micro_batches
  Ranks* ranks = nullptr;  // that have the model; null: this process alone
};

struct EvalOptions {
  Split split = Split::valid;  // the part of the task's data that is read
  std::int64_t batches = 0;    // number of batches; 0: the whole split once
  // Above 0, and `batches` is 0: a fixed sample of so many batches, evenly spread where windows stand alone, or the
  // beginning of each row where a state is carried; of a split with no more than that, all.
  std::int64_t sample = 0;
  std::int64_t batch = 64;    // rows per batch
  std::uint64_t seed = 1337;  // of random batches
  bool clear_state = false;   // clear the recurrent state at every segment (see EvalPlan)
  bool by_position = false;   // keep the losses by position
  bool by_words = false;  // of a whole text: word_perplexity also of bytes and characters, tokens_per_word
  bool capture = true;    // on a GPU, capture and replay batches
  EvalShare share{};
  // For texts. Above 0: windows overlap, each starts without a state, and only its last `score_last` targets
  // count, so that windows of any length are scored on the same tokens. The first window ends before token
  // `from`; 0: as early as possible.
  std::int64_t score_last = 0;
  std::int64_t from = 0;
};

struct EvalResult {
  double loss = std::numeric_limits<double>::quiet_NaN();  // mean over scored targets, nats
  // Of the mean over batches; NaN unless there are at least 2 random ones.
  double standard_error = std::numeric_limits<double>::quiet_NaN();
  std::int64_t tokens = 0;  // scored targets
  std::int64_t of = 0;      // all that the split has, read in this way; 0: not known, or not limited
  double seconds = 0;
  // Metrics beside the loss, by name, such as accuracy or bits_per_byte, in the order to show them.
  std::vector<std::pair<std::string, double>> metrics;
  // With EvalOptions::by_position: the sum and the number of the losses at each position, counted from the
  // beginning of the document, stream or window.
  std::vector<double> position_loss;
  std::vector<std::int64_t> position_count;
  std::map<std::int32_t, std::int64_t> answer_count;        // with by_position: how often each target comes
  bool carried = false;                                     // whether any batch started from a carried state
  std::vector<std::pair<std::string, double>> diagnostics;  // of the model and the last carried state
  std::string uncaptured;  // why a GPU did not replay batches; empty if it did, or if there were few

  double bits_per_token() const { return loss * std::numbers::log2e; }
  double perplexity() const { return std::exp(loss); }
  // Whether the split has more targets than those of the loss.
  bool is_part() const { return tokens < of; }
  // The loss of one who knows no more than how often each target comes: their entropy, nats. NaN where they were not
  // counted.
  double chance() const;
  // Adds the loss of a target at a position.
  void add_position(std::int64_t position, double nats);
};

// Called after each batch with the number of tokens predicted so far and the total. Returns whether to
// continue; if not, the result covers the batches so far.
using EvalProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// The i-th of `chosen` items that are evenly spread over `all`: floor(i all / chosen).
std::int64_t spread_index(std::int64_t i, std::int64_t chosen, std::int64_t all);

// The options of evaluate_batches.
struct EvalPlan {
  bool carry_state = false;
  bool clear_state = false;    // before each batch, apply Model::without_recurrence to the carried state
  bool count_correct = false;  // add "accuracy": the fraction of scored targets with the highest logit
  bool random = false;         // the batches are random: add the standard error of their mean loss
  bool capture = true;         // as EvalOptions::capture
  EvalShare share{};           // as EvalOptions::share
  std::int64_t batches = 0;    // evaluate at most so many; 0: all
  std::int64_t total = 0;      // scored targets in all, for `progress`; 0 when not known
  // Called with each batch and its losses, [batch * rows] in nats, 0 if not scored; may be empty.
  std::function<void(const Batch& batch, std::span<const double> losses)> on_batch{};
  // The position of the i-th target of the last batch: also sums the losses of scored targets by position, into
  // EvalResult::position_loss; may be empty.
  std::function<std::int64_t(std::int64_t i)> position{};
};

// The results of one batch, on the model's device.
struct BatchLosses {
  Tensor losses;         // [batch * rows] nats, 0 where not scored
  Tensor logits;         // with EvalPlan::count_correct
  bool carried = false;  // whether the batch started from a carried state
};
// The recorder for a plan's batches. While it is in use the parameters must not change.
RecorderOptions eval_recorder(const EvalPlan& plan);
// The losses of one batch, replayed where the device supports it. With carry_state it starts from the state in
// `carried` and leaves its own there.
// aliasing: the next call may overwrite the result and the tensors in `carried`.
// errors: those of the model.
BatchLosses evaluate_batch(const Model& model, Batch batch, CarriedState& carried, const EvalPlan& plan,
                           Recorder& recorder);

// Fills a batch and returns true, or returns false at the end.
using NextBatch = std::function<bool(Batch& batch)>;
// The batches make(0), ..., make(count - 1).
NextBatch batches_of(std::int64_t count, std::function<Batch(std::int64_t i)> make);

// The mean loss over all scored targets of the batches that `next` fills until it returns false. Without any
// scored target the loss is NaN.
// errors: those of the model and of `next`.
EvalResult evaluate_batches(const Model& model, const NextBatch& next, const EvalPlan& plan,
                            const EvalProgress& progress = {});

// The mean loss over the non-overlapping windows of `sequence` tokens, each once and in order, `batch` of
// them at a time; the last batch may be smaller. The tokens after the last whole window are left out.
// sample: so many windows, evenly spread over the text; 0, or as many as there are: all.
// errors: ValueError when a size is not positive, the tokens make no window, or an id lies outside the
// vocabulary; ConfigError when the model does not give logits for every position.
EvalResult evaluate(const Model& model, std::span<const std::int32_t> tokens, std::int64_t sequence,
                    std::int64_t batch, const EvalProgress& progress = {}, const EvalPlan& plan = {},
                    std::int64_t sample = 0);

// The mean loss over `batches` batches of windows that start at uniformly drawn positions, which depend on
// the seed alone. They differ from those of training with the same seed.
// errors: as evaluate.
EvalResult evaluate_random(const Model& model, std::span<const std::int32_t> tokens, std::uint64_t seed,
                           std::int64_t batches, std::int64_t batch, std::int64_t sequence,
                           const EvalProgress& progress = {}, const EvalPlan& plan = {});

// The mean loss over the last options.score_last targets of windows of `sequence` tokens, and the accuracy.
// The windows end score_last tokens apart, so each target counts once. With options.batches, options.seed
// draws random windows; otherwise all windows are used in order.
// source: Liang, "Block-wise recurrent transformer" (2024), its evaluation by length.
// errors: as evaluate; ValueError when score_last exceeds the sequence or no text has room for a window.
EvalResult evaluate_last(const Model& model, const std::vector<std::span<const std::int32_t>>& texts,
                         std::int64_t sequence, const EvalOptions& options, const EvalProgress& progress = {},
                         const EvalPlan& plan = {});

}  // namespace eddy::training
