// Counting words, bytes and characters.
#include "train/text/text_measures.h"

#include <algorithm>
#include <numbers>
#include <unordered_map>

#include "train/words/utf8.h"

namespace eddy::training {
namespace {

// The property White_Space of the Unicode character database (PropList.txt), and the four separators
// U+001C..U+001F: Python's str.split, from which published word counts come, splits at them too.
bool is_space(char32_t c) {
  if (c <= 0x20) return (c >= 0x09 && c <= 0x0d) || c >= 0x1c;
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_letter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// Calls visit(word) for each stretch of letters, until it returns false.
template <class Visit>
void visit_words(std::string_view text, const Visit& visit) {
  for (auto at = text.begin(); at != text.end();) {
    const auto begin = std::find_if(at, text.end(), is_letter);
    at = std::find_if_not(begin, text.end(), is_letter);
    if (begin != at && !visit(std::string_view(begin, at))) return;
  }
}

}  // namespace

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char character = utf8_at(text, at);
    const bool space = character.bytes > 0 && is_space(character.code_point);
    if (!space && !inside) ++words;
    inside = !space;
    at += character.bytes > 0 ? static_cast<std::size_t>(character.bytes) : 1;
  }
  return words;
}

WordShare words_known_from(std::string_view text, std::string_view other) {
  WordShare share;
  std::unordered_map<std::string_view, std::int64_t>
      unknown;  // words of the text: how often they stand there
  visit_words(text, [&](std::string_view word) {
    ++unknown[word];
    return ++share.words, true;
  });
  visit_words(other, [&](std::string_view word) {
    if (const auto found = unknown.find(word); found != unknown.end()) {
      share.known += found->second;
      unknown.erase(found);
    }
    return !unknown.empty();
  });
  return share;
}

TextMeasure::TextMeasure(const Tokenizer& tokenizer, const TokenCover& cover) {
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto index = static_cast<std::size_t>(id);
    if (index < cover.shares.size() && cover.shares[index].count > 0) {
      const TokenCover::Share& share = cover.shares[index];
      bytes_.push_back(static_cast<double>(share.bytes) / static_cast<double>(share.count));
      characters_.push_back(static_cast<double>(share.characters) / static_cast<double>(share.count));
      continue;
    }
    const std::string text = tokenizer.decode_one(id);
    bytes_.push_back(static_cast<double>(text.size()));
    characters_.push_back(
        static_cast<double>(std::ssize(text) - std::count_if(text.begin(), text.end(), is_continuation)));
  }
}

void TextMeasure::add(const Batch& batch) {
  const std::int32_t* target = batch.targets.data<std::int32_t>();
  for (std::int64_t i = 0; i < batch.targets.elements(); ++i) {
    const auto id = static_cast<std::size_t>(target[i]);
    if (target[i] < 0 || id >= bytes_.size()) continue;
    all_bytes_ += bytes_[id];
    all_characters_ += characters_[id];
  }
}

std::vector<std::pair<std::string, double>> TextMeasure::metrics(double nats) const {
  std::vector<std::pair<std::string, double>> result;
  const double bits = nats * std::numbers::log2e;
  if (all_bytes_ > 0) result.emplace_back("bits_per_byte", bits / all_bytes_);
  if (all_characters_ > 0 && all_characters_ != all_bytes_)
    result.emplace_back("bits_per_character", bits / all_characters_);
  return result;
}

}  // namespace eddy::training
