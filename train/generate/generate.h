// Text from a model, token by token, through Model::stream: the state is held here and handed over
// explicitly, so that a recurrent model generates any length in constant memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/state.h"
#include "models/model.h"
#include "train/generate/sampler.h"
#include "train/text/tokenizer.h"

namespace eddy {

struct GenerateResult {
  std::int64_t drawn = 0;  // tokens, without the prompt
  std::vector<std::int32_t>
      tokens;                    // these; none where on_text took them, so that a text may be of any length
  std::string stopped;           // why there are fewer than asked for; empty when there are not
  std::string uncaptured;        // why a GPU ran tokens one by one; empty when it replayed them
  std::int64_t state_bytes = 0;  // of the state at the end
  double prompt_seconds = 0;     // until the first token's logits were there
  double seconds = 0;            // from there to the end
};

// What is fed when there is no prompt, as a model needs one token to begin: the newline when the vocabulary
// has it, as that starts a line of text, else token 0.
std::vector<std::int32_t> start_tokens(const Tokenizer& tokenizer);

// Where a text stands: all that a later call needs to go on with it.
struct GenerateState {
  State model;    // after the tokens that were read
  Tensor logits;  // f32 [n_out] on the CPU, after the last of them; undefined before the first
  std::vector<std::int32_t> unread;  // the token drawn last, when the text ended with it
  std::int64_t position = 0;         // tokens of prompts and text so far, the unread one too
};

// Up to `tokens` tokens that continue the prompt (an empty one: start_tokens). The prompt is fed in chunks of
// at most 256 tokens. `on_text` gets the bytes of each token as it is drawn; with byte vocabularies a token
// may be a part of a character, so the bytes must be written in order and unchanged. Token i of the prompt
// and text together is drawn with position i, so that a run with more tokens repeats a shorter one. Ids above
// the tokenizer's are never drawn. The text ends early, with a reason, when Model::stream_room says that the
// model takes no more.
// errors: ValueError when tokens is negative, for bad options and for a prompt longer than the model takes;
// NonFiniteError when the model's logits are.
GenerateResult generate(const Model& model, const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                        std::int64_t tokens, const SampleOptions& options,
                        const std::function<void(std::string_view)>& on_text = {});

// The same, from where `text` stands; it moves on. A prompt is put behind the text so far. Parts give the
// tokens of one call that draws as many. `stop` is asked between two tokens: when it says so, the text ends
// there, and can be gone on with like one that came to its end.
// errors: as above, with `text` as it was where nothing was read yet, else not to be gone on with.
GenerateResult generate(const Model& model, const Tokenizer& tokenizer, GenerateState& text,
                        std::span<const std::int32_t> prompt, std::int64_t tokens,
                        const SampleOptions& options,
                        const std::function<void(std::string_view)>& on_text = {},
                        const std::function<bool()>& stop = {});

}  // namespace eddy
