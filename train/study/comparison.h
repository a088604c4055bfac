// Two runs on the same texts, token by token: where does one predict better, and how far back did the token
// last occur? With a recurrent model and one without, the list shows what only recurrence knows; with one
// model whose state is kept and cleared, what the state knows.
// Source: Hutchins et al., "Block-recurrent transformers" (2022), appendices G, G.1 and H.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/text/tokenizer.h"

namespace eddy {

// A text with what both runs lose on each of its tokens (NaN: not predicted).
struct ComparedText {
  std::string name;
  std::vector<std::int32_t> tokens;
  std::vector<double> nats_a, nats_b;
};

// A token on which the runs differ.
struct TokenDifference {
  std::int64_t text = 0, token = 0;  // which text, and which token in it
  double nats_a = 0, nats_b = 0;
  std::string before, piece, after;  // the text around and of the token
  std::string word;                  // that the token is a part of; empty for spaces and signs
  std::int64_t token_back = -1;      // tokens since the same token; -1: it is the first
  std::int64_t word_back = -1;       // tokens since the word began before; -1: it is the first
};

struct Comparison {
  std::int64_t tokens = 0;                          // that both runs predict
  double loss_a = 0, loss_b = 0;                    // mean nats
  std::vector<TokenDifference> a_better, b_better;  // the largest differences first
};

// The `top` tokens on which a loses less than b, and those on which it loses more, by the difference; of
// equal ones the earlier.
// errors: ValueError when a text's losses and tokens differ in number, or no token is predicted by both.
Comparison compare_runs(const Tokenizer& tokenizer, const std::vector<ComparedText>& texts, std::int64_t top);

// What the page and the terminal say of the runs.
struct ComparedRuns {
  std::string name_a, name_b;
  std::string about_a, about_b;  // model, step, how it reads
};

// The page: means, the difference at each token, the loss up to each position, and both lists.
std::string render_comparison(const ComparedRuns& runs, const std::vector<ComparedText>& texts,
                              const Comparison& comparison);

// One difference as a line for a terminal: places, losses, distances, and the excerpt with |token|.
std::string comparison_line(const TokenDifference& difference, bool with_text);

}  // namespace eddy
