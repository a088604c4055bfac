// Feeding the prompt, then drawing and feeding one token at a time.
#include "train/generate.h"

#include <algorithm>
#include <chrono>

#include "autograd/state.h"
#include "autograd/tape.h"
#include "tensor/format.h"

namespace eddy {
namespace {

constexpr std::size_t kPromptChunk = 256;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Moves the state past the ids. Returns the logits after the last one: f32 on the CPU, contiguous.
Tensor feed(const Model& model, std::span<const std::int32_t> ids, State& state) {
  const Device device = model.params().values().device();
  Tensor tokens = Tensor::from(std::vector<std::int32_t>(ids.begin(), ids.end()),
                               {1, static_cast<std::int64_t>(ids.size())});
  tokens = raw::to_device(tokens, device);
  const Tensor logits = model.stream(tokens, state);
  Tensor last = raw::contiguous(raw::select(raw::select(logits, 0, 0), 0, logits.dim(1) - 1));
  last = raw::to_device(last, kCpu);
  return last.dtype() == Dtype::f32 ? last : raw::cast(last, Dtype::f32);
}

}  // namespace

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
  validate(options);
  if (tokens < 0) fail<ValueError>("generate: {} tokens (at least 0)", tokens);
  const std::vector<std::int32_t> start =
      prompt.empty() ? start_tokens(tokenizer) : std::vector<std::int32_t>{};
  if (prompt.empty()) prompt = start;
  State state;
  const auto length = static_cast<std::int64_t>(prompt.size());
  const std::int64_t room = model.stream_room(state);
  if (room >= 0 && length > room)
    fail<ValueError>("generate: a prompt of {} tokens, and the model takes {} (shorten the prompt)", length,
                     room);

  const NoGrad no_grad;
  auto clock = std::chrono::steady_clock::now();
  Tensor logits;
  for (std::size_t at = 0; at < prompt.size(); at += kPromptChunk)
    logits = feed(model, prompt.subspan(at, std::min(kPromptChunk, prompt.size() - at)), state);

  GenerateResult result;
  result.prompt_seconds = seconds_since(clock);
  clock = std::chrono::steady_clock::now();
  const std::int64_t choices = std::min(logits.elements(), tokenizer.vocab_size());
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int32_t token =
        sample_token(logits.data<float>(), choices, options, static_cast<std::uint64_t>(length + i));
    result.tokens.push_back(token);
    if (on_text) {
      const std::string text = tokenizer.decode_one(token);
      if (!text.empty()) on_text(text);
    }
    if (i + 1 == tokens) break;
    if (model.stream_room(state) == 0) {
      result.stopped =
          fmt::format("the context of {} tokens is full after {} of {} tokens", room, i + 1, tokens);
      break;
    }
    logits = feed(model, {&token, 1}, state);
  }
  result.seconds = seconds_since(clock);
  result.state_bytes = state.bytes();
  return result;
}

}  // namespace eddy
