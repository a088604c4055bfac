// Reads the prompt, then draws and reads one token at a time.
#include "train/generate/generate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "train/step/clock.h"

namespace eddy::training {
namespace {

constexpr std::size_t kPromptChunk = 256;

Tensor rows_of(std::span<const std::int32_t> ids, std::int64_t rows) {
  return Tensor::from(std::vector<std::int32_t>(ids.begin(), ids.end()), {rows, std::ssize(ids) / rows});
}

// The logits after the last token of each row: f32 [rows, n_out], contiguous. Advances the state.
Tensor last_logits(const Model& model, const Tensor& tokens, State& state) {
  const Tensor last = raw::contiguous(raw::select(model.stream(tokens, state), 1, tokens.dim(1) - 1));
  return last.dtype() == Dtype::f32 ? last : raw::cast(last, Dtype::f32);
}

// The signature of the next token; nullopt, with a message, when no two tokens of the model have the same one.
std::optional<std::string> token_signature(const Model& model, const State& state, Recorder& recorder) {
  if (!recorder.wanted()) return std::nullopt;
  const auto signature = model.stream_signature(state);
  if (signature) return fmt::format("{}", fmt::join(*signature, " "));
  recorder.set_message(fmt::format("tokens of {} run uncaptured: no two positions ask for the same work",
                                   model.config().model));
  return std::nullopt;
}

}  // namespace

Tensor next_logits(const Model& model, std::span<const std::int32_t> ids, State& state, Recorder& recorder) {
  const NoGrad no_grad;
  Tensor tokens = rows_of(ids, std::ssize(ids));
  return raw::to_device(recorder.run(token_signature(model, state, recorder), {&tokens}, state,
                                     [&](State& before) { return last_logits(model, tokens, before); }),
                        kCpu);
}

std::vector<std::int32_t> start_tokens(const Tokenizer& tokenizer) {
  try {
    const std::vector<std::int32_t> newline = tokenizer.encode("\n");
    if (!newline.empty()) return newline;
  } catch (const ValueError&) {
    // A vocabulary made of one-line texts has no newline.
  }
  return {0};
}

GenerateResult generate(const Model& model, const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                        std::int64_t tokens, const SampleOptions& options,
                        const std::function<void(std::string_view)>& on_text) {
  GenerateState text;
  return generate(model, tokenizer, text, prompt, tokens, options, on_text);
}

GenerateResult generate(const Model& model, const Tokenizer& tokenizer, GenerateState& text,
                        std::span<const std::int32_t> prompt, std::int64_t tokens,
                        const SampleOptions& options, const std::function<void(std::string_view)>& on_text,
                        const std::function<bool()>& stop) {
  validate(options);
  if (tokens < 0) fail<ValueError>("generate: {} tokens (at least 0)", tokens);
  std::vector<std::int32_t> ahead = text.unread;
  ahead.insert(ahead.end(), prompt.begin(), prompt.end());
  if (text.position == 0 && prompt.empty()) ahead = start_tokens(tokenizer);
  const auto length = std::ssize(ahead);
  const std::int64_t remaining = model.remaining_context(text.model);
  if (remaining >= 0 && length > remaining && text.position == 0)
    fail<ValueError>("generate: a prompt of {} tokens, and the model takes {} (shorten the prompt)", length,
                     remaining);
  if (remaining >= 0 && length > remaining)
    fail<ValueError>(
        "generate: {} tokens after {}, and the model takes only {} more (its context is full: start a new text)",
        length, text.position - std::ssize(text.unread), remaining);

  const NoGrad no_grad;
  auto clock = Clock::now();
  text.position += length - std::ssize(text.unread);
  const std::int64_t context = remaining < 0 ? remaining : remaining + text.position - length;
  // The unread token is read alone, as in a text that had not ended there, so the bits are the same.
  std::span<const std::int32_t> rest = ahead;
  for (std::size_t part = text.unread.size(); !rest.empty(); part = 0) {
    if (stop && stop()) {
      GenerateResult stopped;
      stopped.stopped = fmt::format("interrupted after {} of {} tokens of the prompt",
                                    std::ssize(ahead) - std::ssize(rest), length);
      return stopped;
    }
    if (part == 0) part = std::min(kPromptChunk, rest.size());
    const Tensor read = raw::to_device(rows_of(rest.first(part), 1), model.params().values().device());
    const Tensor logits = raw::to_device(last_logits(model, read, text.model), kCpu);
    text.logits = raw::reshape(logits, {logits.elements()});
    rest = rest.subspan(part);
  }
  text.unread.clear();

  Recorder recorder(model.params(), token_recorder());
  GenerateResult result;
  result.prompt_seconds = seconds_between(clock);
  clock = Clock::now();
  const std::int64_t choices = std::min(text.logits.elements(), tokenizer.vocab_size());
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int32_t token =
        sample_token(text.logits.data<float>(), choices, options, static_cast<std::uint64_t>(text.position));
    ++text.position;
    text.unread = {token};
    ++result.drawn;
    if (!on_text) result.tokens.push_back(token);
    if (on_text) {
      const std::string piece = tokenizer.decode_one(token);
      if (!piece.empty()) on_text(piece);
    }
    if (i + 1 == tokens) break;
    if (stop && stop()) {
      result.stopped = fmt::format("interrupted after {} of {} tokens", i + 1, tokens);
      break;
    }
    if (model.remaining_context(text.model) == 0) {
      result.stopped =
          fmt::format("the context of {} tokens is full after {} of {} tokens", context, i + 1, tokens);
      break;
    }
    const Tensor logits = next_logits(model, {&token, 1}, text.model, recorder);
    text.logits = raw::reshape(logits, {logits.elements()});
    text.unread.clear();
  }
  result.seconds = seconds_between(clock);
  result.uncaptured = recorder.take_message();
  result.state_bytes = text.model.bytes();
  return result;
}

}  // namespace eddy::training
