// Generates text token by token through Model::stream. The caller holds the state, so a recurrent model
// generates any length in constant memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/state.h"
#include "models/eddy/registry.h"
#include "train/step/recorder.h"
#include "train/text/tokenizer.h"

namespace eddy::training {

// Draws one token from logits l: softmax at a temperature, restricted to the most probable tokens.
//
//   p_i = exp((l_i - max l) / temperature) / sum
//   keep the top_k largest p
//   of these keep the fewest, largest first, whose sum reaches top_p of theirs
//   draw from what is left
//
// Draws are counter-based: the token drawn at a position depends on (seed, position), not on earlier draws.
// Source of top-p: Holtzman et al., "The Curious Case of Neural Text Degeneration" (2020), section 3.1.
struct SampleOptions {
  double temperature = 1.0;  // 0: the most probable token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;        // in (0, 1]; 1: all
  std::uint64_t seed = 1337;
};

// Checks the options.
// errors: ValueError for a temperature that is negative or not finite, a negative top_k, a top_p outside
// (0, 1].
void validate(const SampleOptions& options);

// The index drawn from `count` logits for a position in a sequence. Of equal logits the lower index ranks
// first, in the greedy choice and in both restrictions. Arithmetic is f64.
// errors: as validate; ValueError when there are no logits or more than an i32 can number; NonFiniteError
// naming the first logit that is a NaN or infinite.
std::int32_t sample_token(const float* logits, std::int64_t count, const SampleOptions& options,
                          std::uint64_t position);

struct GenerateResult {
  std::int64_t drawn = 0;            // tokens generated, without the prompt
  std::vector<std::int32_t> tokens;  // these tokens; empty with on_text, so that a text may have any length
  std::string stopped;               // why there are fewer than requested; empty when there are not
  std::string uncaptured;            // why a GPU did not replay tokens; empty when it did
  std::int64_t state_bytes = 0;      // of the state at the end
  double prompt_seconds = 0;         // until the first token's logits were computed
  double seconds = 0;                // from there to the end
};

// The tokens to start from without a prompt, as a model needs one token to begin: a newline if the vocabulary
// has one, else token 0.
std::vector<std::int32_t> start_tokens(const Tokenizer& tokenizer);

// The recorder for next_logits. A window of the Block-Recurrent models has 512 positions or more. Graphs share
// their working memory; each has its own logits, and its launches in the driver's memory.
inline RecorderOptions token_recorder(bool wanted = true) {
  return {.wanted = wanted, .work = "tokens", .graphs = 1024, .in_place = true};
}

// The logits of the next token after one token of each row: f32 [rows, n_out] on the CPU. Advances `state`.
// Where the device supports it, tokens are replayed, with the same bits: a model without blocks has one signature
// of tokens, one with blocks has one for each position in a block (Model::stream_signature).
// aliasing: the next call may overwrite the tensors in `state`; copy what must last.
// errors: those of Model::stream.
Tensor next_logits(const Model& model, std::span<const std::int32_t> ids, State& state, Recorder& recorder);

// A text in progress: all that a later call needs to continue it.
struct GenerateState {
  State model;                       // the model's state after the tokens read so far
  Tensor logits;                     // f32 [n_out] on the CPU, after the last of them; undefined if none
  std::vector<std::int32_t> unread;  // the last token drawn, if the model has not read it yet
  std::int64_t position = 0;         // number of tokens of prompts and text so far, the unread one included
};

// Up to `tokens` tokens that continue the prompt (when it is empty: start_tokens). The prompt is read in
// chunks of at most 256 tokens. `on_text` gets the bytes of each token as it is drawn; with byte vocabularies
// a token may be a part of a character, so write the bytes in order and unchanged. Token i of prompt and text
// together is drawn with position i, so a run with more tokens begins like a shorter one. Ids beyond the
// tokenizer's vocabulary are never drawn. The text ends early, with a reason, when Model::remaining_context is 0.
// errors: ValueError when tokens is negative, for bad options, and for a prompt longer than the model takes;
// NonFiniteError when the model's logits are not finite.
GenerateResult generate(const Model& model, const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                        std::int64_t tokens, const SampleOptions& options,
                        const std::function<void(std::string_view)>& on_text = {});

// The same, continuing `text`, which is advanced. A prompt is appended to the text so far. Several calls give
// the same tokens as one call for their sum. `stop` is called between two tokens; when it returns true, the
// text ends there and can be continued later. It is also called while the prompt is read: a text that ends there,
// with nothing drawn, cannot be continued.
// errors: as above. Then `text` is unchanged if nothing was read yet; otherwise it cannot be continued.
GenerateResult generate(const Model& model, const Tokenizer& tokenizer, GenerateState& text,
                        std::span<const std::int32_t> prompt, std::int64_t tokens,
                        const SampleOptions& options,
                        const std::function<void(std::string_view)>& on_text = {},
                        const std::function<bool()>& stop = {});

}  // namespace eddy::training
