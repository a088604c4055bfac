// Ranks the tokens by the difference of their losses, and finds the earlier occurrences of tokens and words.
#include "train/app/report/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "train/run/checkpoint.h"
#include "train/tasks/sequence_reader.h"
#include "train/tasks/task.h"
#include "train/words/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::size_t kBefore = 90, kAfter = 60;  // bytes of an excerpt

// Letters, digits and all of Unicode except known separators: spaces, and the quotation marks and dashes of
// the block U+2000 to U+206F.
bool in_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return !(c <= 0xbf || (c >= 0x2000 && c <= 0x206f) || (c >= 0x3000 && c <= 0x303f));
}

struct Word {
  std::size_t begin = 0, end = 0;  // bytes
  std::int64_t previous = -1;      // where the same word last began, in bytes
};

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  std::unordered_map<std::string_view, std::size_t> last;
  bool inside = false;
  for (std::size_t at = 0; at <= text.size();) {
    const Utf8Char character = at < text.size() ? utf8_at(text, at) : Utf8Char{};
    const bool part = character.bytes > 0 && in_word(character.code_point);
    if (part && !inside) words.push_back({at, at, -1});
    if (!part && inside) {
      Word& word = words.back();
      word.end = at;
      const std::string_view name = text.substr(word.begin, word.end - word.begin);
      const auto [found, fresh] = last.try_emplace(name, word.begin);
      if (!fresh) word.previous = static_cast<std::int64_t>(found->second);
      found->second = word.begin;
    }
    inside = part;
    at += static_cast<std::size_t>(std::max(character.bytes, 1));
  }
  return words;
}

// A text as bytes, and the byte at which each token begins.
struct Layout {
  std::string text;
  std::vector<std::size_t> begin;  // tokens + 1 entries; the last is the end
  std::vector<Word> words;

  Layout(const Tokenizer& tokenizer, const std::vector<std::int32_t>& tokens) {
    begin.reserve(tokens.size() + 1);
    for (const std::int32_t token : tokens) {
      begin.push_back(text.size());
      text += tokenizer.decode_one(token);
    }
    begin.push_back(text.size());
    words = words_of(text);
  }

  // Returns the token that the byte belongs to.
  std::int64_t token_at(std::size_t byte) const {
    return std::upper_bound(begin.begin(), begin.end(), byte) - begin.begin() - 1;
  }

  void describe(const std::vector<std::int32_t>& tokens, TokenDifference& d) const {
    const auto token = static_cast<std::size_t>(d.token);
    const std::size_t from = begin[token], to = begin[token + 1];
    d.piece = text.substr(from, to - from);
    // Excerpts are not cut inside a character.
    std::size_t left = from > kBefore ? from - kBefore : 0, right = std::min(text.size(), to + kAfter);
    while (left < from && is_continuation(text[left])) ++left;
    while (right > to && right < text.size() && is_continuation(text[right])) --right;
    d.before = text.substr(left, from - left);
    d.after = text.substr(to, right - to);
    for (std::size_t i = token; i-- > 0 && d.token_back < 0;)
      if (tokens[i] == tokens[token]) d.token_back = static_cast<std::int64_t>(token - i);
    // The first word that shares a byte with the token.
    const auto word = std::lower_bound(words.begin(), words.end(), from,
                                       [](const Word& w, std::size_t byte) { return w.end <= byte; });
    if (word == words.end() || word->begin >= to) return;
    d.word = text.substr(word->begin, word->end - word->begin);
    if (word->previous >= 0)
      d.word_back = token_at(word->begin) - token_at(static_cast<std::size_t>(word->previous));
  }
};

// Returns the `top` tokens by nats_b - nats_a, or with `sign` -1 by nats_a - nats_b.
std::vector<TokenDifference> largest(const std::vector<ComparedText>& texts, std::int64_t top, double sign) {
  std::vector<TokenDifference> all;
  const auto gap = [sign](const TokenDifference& d) { return sign * (d.nats_b - d.nats_a); };
  const auto before = [&](const TokenDifference& x, const TokenDifference& y) {
    if (gap(x) != gap(y)) return gap(x) > gap(y);
    return x.text != y.text ? x.text < y.text : x.token < y.token;
  };
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(top, 0));
  for (std::size_t t = 0; t < texts.size(); ++t) {
    for (std::size_t i = 0; i < texts[t].tokens.size(); ++i) {
      TokenDifference d;
      d.text = static_cast<std::int64_t>(t);
      d.token = static_cast<std::int64_t>(i);
      d.nats_a = texts[t].nats_a[i];
      d.nats_b = texts[t].nats_b[i];
      if (gap(d) > 0 && std::isfinite(gap(d))) all.push_back(std::move(d));
    }
    // Keep only the best candidates for the next text.
    const std::size_t kept = std::min(most, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(), before);
    all.resize(kept);
  }
  return all;
}

}  // namespace

TokenReading reading_of(const LoadedRun& run, std::int64_t rows) {
  TokenReading reading;
  reading.segment = segment_length(run.config);
  reading.rows = rows;
  reading.carry_state = texts_carry_state(run.config) && carries_state(run.model->full_config());
  return reading;
}

std::string describe_reading(const LoadedRun& run, const TokenReading& reading,
                             const std::string& precision) {
  return fmt::format("{}, step {}, segments of {}, {}, {}{}", run.config.model.model, run.step,
                     reading.segment,
                     reading.clear_state         ? "the state cleared at each"
                     : !reading.carry_state      ? "each read afresh"
                     : run.model->is_recurrent() ? "the state carried"
                                                 : "a cache of the last tokens carried",
                     precision, precision_note(run.config.train.precision, precision));
}

std::vector<std::int32_t> TokenReading::labels_of(std::size_t text,
                                                  std::span<const std::int32_t> tokens) const {
  if (!answers.empty()) return answers[text];
  std::vector<std::int32_t> labels(tokens.begin() + 1, tokens.end());
  labels.push_back(kNotScored);
  return labels;
}

// Texts are read as sequences with labels.
std::vector<std::vector<double>> token_losses(const Model& model,
                                              const std::vector<std::span<const std::int32_t>>& texts,
                                              const TokenReading& reading, const EvalProgress& progress) {
  std::vector<std::vector<std::int32_t>> labels;
  std::vector<std::vector<double>> losses;
  std::vector<Sequence> sequences;
  std::vector<std::size_t> text_of;  // of each sequence
  labels.reserve(texts.size());      // sequences point into them
  EvalPlan plan;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    losses.emplace_back(texts[i].size(), std::numeric_limits<double>::quiet_NaN());
    if (texts[i].size() < 2) continue;
    labels.push_back(reading.labels_of(i, texts[i]));
    sequences.push_back({texts[i], labels.back()});
    text_of.push_back(i);
    plan.total += std::ssize(texts[i]) - 1;
  }
  if (sequences.empty()) fail<ValueError>("compare: no text has a token to predict (at least 2 tokens)");
  ReadingOptions options;
  options.rows = std::min<std::int64_t>(reading.rows, std::ssize(sequences));
  options.segment = reading.segment;
  options.pad = true;
  options.once = true;
  SequenceReader reader(sequences, options);
  plan.carry_state = reading.carry_state;
  plan.clear_state = reading.clear_state;
  plan.on_batch = [&](const Batch& batch, std::span<const double> nats) {
    const std::int32_t* target = batch.targets.data<std::int32_t>();
    for (std::size_t i = 0; i < nats.size(); ++i) {
      if (target[i] == kNotScored) continue;
      const auto segment = static_cast<std::size_t>(reading.segment);
      const SequenceReader::RowPosition& place = reader.row_positions()[i / segment];
      const std::size_t token = static_cast<std::size_t>(place.position) + i % segment + reading.ahead();
      losses[text_of[static_cast<std::size_t>(place.sequence)]][token] = nats[i];
    }
  };
  static_cast<void>(evaluate_batches(
      model, [&](Batch& batch) { return reader.next(batch); }, plan, progress));
  return losses;
}

Comparison compare_runs(const Tokenizer& tokenizer, const std::vector<ComparedText>& texts,
                        std::int64_t top) {
  Comparison result;
  for (const ComparedText& text : texts) {
    if (text.nats_a.size() != text.tokens.size() || text.nats_b.size() != text.tokens.size())
      fail<ValueError>("compare: {} has {} tokens and {} and {} losses (as many of each)", text.name,
                       text.tokens.size(), text.nats_a.size(), text.nats_b.size());
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
      if (!std::isfinite(text.nats_a[i]) || !std::isfinite(text.nats_b[i])) continue;
      ++result.tokens;
      result.loss_a += text.nats_a[i];
      result.loss_b += text.nats_b[i];
    }
  }
  if (result.tokens == 0)
    fail<ValueError>(
        "compare: no token has a finite loss under both runs (as after a training that diverged: --checkpoint takes an "
        "earlier checkpoint of both, best or step-N)");
  result.loss_a /= static_cast<double>(result.tokens);
  result.loss_b /= static_cast<double>(result.tokens);
  result.a_better = largest(texts, top, 1);
  result.b_better = largest(texts, top, -1);
  for (std::size_t t = 0; t < texts.size(); ++t) {
    std::vector<TokenDifference*> here;
    for (std::vector<TokenDifference>* list : {&result.a_better, &result.b_better})
      for (TokenDifference& d : *list)
        if (d.text == static_cast<std::int64_t>(t)) here.push_back(&d);
    if (here.empty()) continue;
    const Layout layout(tokenizer, texts[t].tokens);
    for (TokenDifference* d : here) layout.describe(texts[t].tokens, *d);
  }
  return result;
}

}  // namespace eddy::app
