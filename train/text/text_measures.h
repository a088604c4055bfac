// Measures of a text that do not depend on the tokenizer, from the summed loss of its tokens:
//
//   bits per byte        = nats / (ln 2 * bytes)
//   bits per character   = nats / (ln 2 * characters)
//   word perplexity      = exp(nats / words)
//
// Source: Hutchins et al., "Block-recurrent transformers" (2022), section 4 and appendix (word perplexity).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/step/batch.h"
#include "train/text/tokenizer.h"

namespace eddy::training {

// The number of words: stretches between white space, Unicode's included. Bytes that are no UTF-8 count as
// parts of words.
std::int64_t count_words(std::string_view text);

// Of the words of a text, each as often as it stands there, how many stand in another text too. A word is a stretch of
// letters: of ASCII's, and of all bytes beyond it. Capitals count: `The` is another word than `the`.
struct WordShare {
  std::int64_t words = 0, known = 0;
};
WordShare words_known_from(std::string_view text, std::string_view other);

// Counts the bytes and characters of the scored targets' text. Token lengths are computed once, in advance.
class TextMeasure {
 public:
  // A token counts as what it decodes to. In a text that the vocabulary does not cover it counts as what stands
  // for it there on average, by `cover`.
  explicit TextMeasure(const Tokenizer& tokenizer, const TokenCover& cover = {});

  // Counts a batch's scored targets.
  void add(const Batch& batch);
  // {"bits_per_byte", ...}, and "bits_per_character" when the text has characters of several bytes. `nats` is
  // the summed loss of the targets counted. Empty when there is no text.
  std::vector<std::pair<std::string, double>> metrics(double nats) const;

 private:
  std::vector<double> bytes_, characters_;  // of each token
  double all_bytes_ = 0, all_characters_ = 0;
};

}  // namespace eddy::training
