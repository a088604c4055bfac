// What a loss on tokens means for the text behind them: bits per byte and per character, and the perplexity
// per word, which can be compared between tokenizers.
// Source: Hutchins et al., "Block-recurrent transformers" (2022), section 4 and appendix: word-level
// perplexity = exp(all nats / words).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/step/batch.h"
#include "train/text/tokenizer.h"

namespace eddy {

// The number of words: stretches between white space, that of Unicode included. Any bytes will do; those that
// are no UTF-8 belong to words.
std::int64_t count_words(std::string_view text);

// Adds up the text behind scored targets. Each token's length is looked up once.
class TextMeasure {
 public:
  explicit TextMeasure(const Tokenizer& tokenizer);

  void add(const Batch& batch);
  // {"bits_per_byte", ...}, and "bits_per_character" where the text has characters of several bytes. `nats`
  // is the sum of the losses of the targets added. Empty without any text.
  std::vector<std::pair<std::string, double>> extras(double nats) const;

 private:
  std::vector<std::uint32_t> bytes_, characters_;  // of each token
  std::int64_t all_bytes_ = 0, all_characters_ = 0;
};

}  // namespace eddy
