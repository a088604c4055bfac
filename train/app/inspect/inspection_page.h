// An inspection as one page of HTML that needs no network: the text, the charts and the attention are drawn by its
// script (inspect.js, inspect_charts.js) from numbers in base64. Losses are there as f32; other series in steps of
// 1/65534 of their range; attention in steps of 1/255; the map of the state in steps of 1/254.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/eddy/config.h"
#include "train/app/inspect/inspection.h"
#include "train/text/tokenizer.h"

namespace eddy::app {

// What the page says of the run and of what it reads.
struct InspectedText {
  std::string run, text;           // names; of a task "its task, recall"
  std::string about;               // model, step, how it reads the text
  std::int64_t tokens_in_all = 0;  // of the text, of which the page may have fewer
  bool recurrent = false;          // Model::is_recurrent
  TokenText answer_text{};         // of a task
};

// The text of tokens for people, and how many UTF-16 units of it belong to each token: a character belongs to the token
// in which it begins. Bytes that are no character, and control characters, are U+FFFD.
struct ShownTokens {
  std::string text;
  std::vector<std::uint16_t> lengths;
};
ShownTokens shown_tokens(const TokenText& text_of_token, std::span<const std::int32_t> tokens);

// The texts of a tokenizer's tokens; it must outlive them.
TokenText token_text(const training::Tokenizer& tokenizer);

std::string render_inspection(const InspectedText& about, const ModelConfig& config,
                              const TokenText& text_of_token, std::span<const std::int32_t> tokens,
                              const Inspection& inspection);

}  // namespace eddy::app
