// Compares two runs on the same texts, token by token: where does one predict better, and how far back did
// the token last occur? Comparing a recurrent model with one that is not shows what recurrence adds.
// Comparing one model with its state kept and with its state cleared shows what the state holds.
// Source: Hutchins et al., "Block-recurrent transformers" (2022), appendices G, G.1 and H.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/app/views/table.h"
#include "train/eval/evaluate.h"
#include "train/text/tokenizer.h"

namespace eddy::training {
struct LoadedRun;  // train/run/checkpoint.h
}  // namespace eddy::training

namespace eddy::app {

// How a run reads texts.
struct TokenReading {
  std::int64_t segment = 1;  // tokens of one forward pass
  std::int64_t rows = 1;     // texts read side by side
  bool carry_state =
      false;  // carry the state, or a cache, from segment to segment; else each starts without one
  bool clear_state = false;  // EvalPlan::clear_state (train/eval/evaluate.h)
  // Of each text the answer behind each token (kNotScored: none), of tasks without texts; empty: the next tokens.
  std::vector<std::vector<std::int32_t>> answers{};

  // What is predicted at each token of a text, and how far on stands the token whose loss that is: 1 for next tokens.
  std::vector<std::int32_t> labels_of(std::size_t text, std::span<const std::int32_t> tokens) const;
  std::size_t ahead() const { return answers.empty() ? 1 : 0; }
};

// Returns how a run reads a text: as in training. A model whose calls leave nothing to the next one carries nothing.
TokenReading reading_of(const training::LoadedRun& run, std::int64_t rows);
// "unit_forget, step 400, segments of 256, the state carried, f32",
// with a note where the precision is another than that of training.
std::string describe_reading(const training::LoadedRun& run, const TokenReading& reading,
                             const std::string& precision);

// Returns the loss in nats of each token of each text, given the tokens before it, or that of the answer behind it. The
// first token of a text is NaN, since nothing predicts it, and so is a token without an answer. Texts start without a
// state. The last token of a segment predicts the first of the next, so every model predicts the same tokens whatever
// its segment.
// errors: ValueError when no text has two tokens; those of the model.
std::vector<std::vector<double>> token_losses(const Model& model,
                                              const std::vector<std::span<const std::int32_t>>& texts,
                                              const TokenReading& reading,
                                              const training::EvalProgress& progress = {});

// A text with the loss of both runs on each of its tokens (NaN: not predicted).
struct ComparedText {
  std::string name;
  std::vector<std::int32_t> tokens;
  std::vector<double> nats_a, nats_b;
};

// A token on which the runs differ.
struct TokenDifference {
  std::int64_t text = 0, token = 0;  // index of the text, and of the token in it
  double nats_a = 0, nats_b = 0;
  std::string before, piece, after;  // the text of the token, and around it
  std::string word;                  // the word the token belongs to; empty for spaces and signs
  std::int64_t token_back = -1;      // tokens since the same token; -1: its first occurrence
  std::int64_t word_back = -1;       // tokens since the word last began; -1: its first occurrence
};

struct Comparison {
  std::int64_t tokens = 0;                          // predicted by both runs
  double loss_a = 0, loss_b = 0;                    // mean nats
  std::vector<TokenDifference> a_better, b_better;  // the largest differences first
};

// Returns the `top` tokens on which a loses less than b, and the `top` on which it loses more, sorted by the
// difference; ties go to the earlier token.
// errors: ValueError when the losses and the tokens of a text differ in number, or no token is predicted by
// both.
Comparison compare_runs(const training::Tokenizer& tokenizer, const std::vector<ComparedText>& texts,
                        std::int64_t top);

// Names and descriptions of the runs, for the page and the terminal.
struct ComparedRuns {
  std::string name_a, name_b;
  std::string about_a, about_b;  // model, step, how it reads the text
};

// Returns a page with the mean losses, the difference at each token, the loss up to each position, and both
// lists.
std::string render_comparison(const ComparedRuns& runs, const std::vector<ComparedText>& texts,
                              const Comparison& comparison);

// Returns a list of differences, for the page and the terminal: where each token is, both losses, how far back it and
// its word were, and the excerpt with |token|. Of several texts the first column says which.
Table table_of(const std::vector<ComparedText>& texts, const std::vector<TokenDifference>& list);

}  // namespace eddy::app
