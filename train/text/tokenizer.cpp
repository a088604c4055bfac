// The char and byte vocabularies, and the JSON form of all tokenizers:
//
//   {"name":"byte"}
//   {"name":"ids","vocab":32000}
//   {"characters":"...","name":"char"}, and perhaps "added":"...": characters with the ids after those
//   {"model":"(base64)","name":"sentencepiece"}
#include "train/text/tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/base/number_text.h"
#include "tensor/files/json_text.h"
#include "tensor/files/strict_json.h"
#include "train/files/base64.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

// Calls visit(code point, byte offset) for each character of a text.
template <class Visit>
void for_each_character(std::string_view text, Visit&& visit) {
  for (std::size_t offset = 0; offset < text.size();) {
    const Utf8Char character = utf8_at(text, offset);
    if (character.bytes == 0)
      fail<FormatError>(
          "tokenizer char: the text is not UTF-8: byte 0x{:02x} at offset {} (convert the text, or take the "
          "tokenizer byte)",
          static_cast<unsigned char>(text[offset]), offset);
    visit(character.code_point, offset);
    offset += static_cast<std::size_t>(character.bytes);
  }
}

// 'x' for a printable character, the number alone for a control character.
std::string shown(char32_t code_point) {
  const auto number = static_cast<std::uint32_t>(code_point);
  if (number < 0x20 || (number >= 0x7f && number < 0xa0)) return fmt::format("U+{:04X}", number);
  std::string text;
  append_utf8(text, code_point);
  return fmt::format("'{}' (U+{:04X})", text, number);
}

constexpr std::size_t kAllCodePoints = 0x110000;  // a flag for each takes 136 KiB

class CharTokenizer final : public Tokenizer {
 public:
  // Code points by id, without repeats; the first `sorted` of them rise.
  CharTokenizer(std::vector<char32_t> code_points, std::size_t sorted)
      : code_points_(std::move(code_points)), sorted_(sorted) {
    ascii_.fill(-1);
    for (std::size_t id = 0; id < code_points_.size(); ++id) {
      if (code_points_[id] < 128) ascii_[code_points_[id]] = static_cast<std::int32_t>(id);
      ids_.emplace_back(code_points_[id], static_cast<std::int32_t>(id));
    }
    std::sort(ids_.begin(), ids_.end());
  }

  std::string name() const override { return kCharTokenizer; }
  std::int64_t vocab_size() const override { return std::ssize(code_points_); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for_each_character(text, [&](char32_t code_point, std::size_t offset) {
      const std::int32_t id = rank_of(code_point);
      if (id < 0)
        fail<ValueError>(
            "tokenizer char: unknown character {} at byte offset {} (leave it out: the vocabulary is the {} characters "
            "of the training text; data.tokenizer byte takes any text)",
            shown(code_point), offset, vocab_size());
      ids.push_back(id);
    });
    return ids;
  }

  std::string with_known(std::string_view text, std::vector<std::string>& replaced) const override {
    const std::string stand_in = rank_of(U'?') >= 0 ? "?" : rank_of(U' ') >= 0 ? " " : "";
    std::string known;
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char character = utf8_at(text, at);
      const std::size_t bytes = character.bytes > 0 ? static_cast<std::size_t>(character.bytes) : 1;
      if (character.bytes > 0 && rank_of(character.code_point) >= 0) {
        known += text.substr(at, bytes);
      } else {
        std::string name = character.bytes > 0
                               ? shown(character.code_point)
                               : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(text[at]));
        if (std::find(replaced.begin(), replaced.end(), name) == replaced.end())
          replaced.push_back(std::move(name));
        known += stand_in;
      }
      at += bytes;
    }
    return known;
  }

  std::vector<char32_t> missing_in(std::string_view text) const override {
    std::vector<char> known(kAllCodePoints);  // a byte each: looked up for every character of a text
    for (const char32_t code_point : code_points_) known[code_point] = true;
    std::vector<char32_t> missing;
    for_each_character(text, [&](char32_t code_point, std::size_t) {
      if (!known[code_point]) missing.push_back(code_point);
      known[code_point] = true;
    });
    std::sort(missing.begin(), missing.end());
    return missing;
  }

  std::unique_ptr<Tokenizer> with(const std::vector<char32_t>& characters) const override {
    std::vector<char32_t> all = code_points_;
    all.insert(all.end(), characters.begin(), characters.end());
    return std::make_unique<CharTokenizer>(std::move(all), sorted_);
  }

  std::string to_json() const override {
    std::string characters, added;
    for (std::size_t id = 0; id < code_points_.size(); ++id)
      append_utf8(id < sorted_ ? characters : added, code_points_[id]);
    nlohmann::json description{{"name", kCharTokenizer}, {"characters", characters}};
    if (!added.empty()) description["added"] = added;
    return description.dump();
  }

 private:
  void append_text(std::string& text, std::int32_t id) const override {
    append_utf8(text, code_points_[static_cast<std::size_t>(id)]);
  }

  std::int32_t rank_of(char32_t code_point) const {
    if (code_point < 128) return ascii_[code_point];
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), std::pair(code_point, std::int32_t{0}));
    return at != ids_.end() && at->first == code_point ? at->second : -1;
  }

  std::vector<char32_t> code_points_;
  std::size_t sorted_;
  std::vector<std::pair<char32_t, std::int32_t>> ids_;  // sorted
  std::array<std::int32_t, 128> ascii_;                 // id of an ASCII character, -1 when it is unknown
};

// id = byte + reserved.
class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer(std::string name, std::int32_t vocab_size, std::int32_t reserved)
      : name_(std::move(name)), vocab_size_(vocab_size), reserved_(reserved) {}

  std::string name() const override { return name_; }
  std::int64_t vocab_size() const override { return vocab_size_; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]) + reserved_;
    return ids;
  }

  std::string to_json() const override { return nlohmann::json{{"name", name_}}.dump(); }

 private:
  void append_text(std::string& text, std::int32_t id) const override {
    const std::int32_t byte = id - reserved_;
    if (byte >= 0 && byte < 256) text.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
  }

  std::string name_;
  std::int32_t vocab_size_;
  std::int32_t reserved_;
};

std::unique_ptr<Tokenizer> byte_tokenizer(std::string_view name) {
  if (name == kByteTokenizer) return std::make_unique<ByteTokenizer>(kByteTokenizer, 256, 0);
  // 260 = 256 bytes + 3 reserved ids, rounded up to a multiple of four. Id 259 is unused and decodes to "".
  if (name == kByte260Tokenizer) return std::make_unique<ByteTokenizer>(kByte260Tokenizer, 260, 3);
  return nullptr;
}

constexpr std::int64_t kMostIds = std::numeric_limits<std::int32_t>::max();

// Calls visit(word, byte offset) for each word of a text between white space.
template <class Visit>
void for_each_word(std::string_view text, const Visit& visit) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  for (std::size_t at = text.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    visit(text.substr(at, end - at), at);
    at = text.find_first_not_of(kSpace, end);
  }
}

// Token ids as numbers, each with a space behind it.
class IdTokenizer final : public Tokenizer {
 public:
  explicit IdTokenizer(std::int64_t vocab_size) : vocab_size_(vocab_size) {}

  std::string name() const override { return kIdsTokenizer; }
  std::int64_t vocab_size() const override { return vocab_size_; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for_each_word(text, [&](std::string_view word, std::size_t offset) {
      ids.push_back(id_of(word));
      if (ids.back() < 0)
        fail<ValueError>(
            "tokenizer ids: {} at byte offset {} is no id (whole numbers from 0 to {}, with spaces between)",
            quote_text(word.substr(0, 20)), offset, vocab_size_ - 1);
    });
    return ids;
  }

  std::string with_known(std::string_view text, std::vector<std::string>& replaced) const override {
    std::string known;
    for_each_word(text, [&](std::string_view word, std::size_t) {
      if (id_of(word) >= 0)
        known.append(word).push_back(' ');
      else if (std::find(replaced.begin(), replaced.end(), word) == replaced.end())
        replaced.emplace_back(word);
    });
    return known;
  }

  std::string to_json() const override {
    return nlohmann::json{{"name", kIdsTokenizer}, {"vocab", vocab_size_}}.dump();
  }

 private:
  void append_text(std::string& text, std::int32_t id) const override { text += fmt::format("{} ", id); }

  // -1 for a word that is no id of the vocabulary.
  std::int32_t id_of(std::string_view word) const {
    std::int32_t id = -1;
    const auto [end, error] = number_from(word.data(), word.data() + word.size(), id);
    const bool whole = error == std::errc() && end == word.data() + word.size();
    return whole && id >= 0 && id < vocab_size_ ? id : -1;
  }

  std::int64_t vocab_size_;
};

std::unique_ptr<Tokenizer> char_tokenizer(std::string_view text) {
  if (text.empty())
    fail<ValueError>("tokenizer char: the training text is empty (its characters are the vocabulary)");
  std::vector<char> present(kAllCodePoints);
  for_each_character(text, [&](char32_t code_point, std::size_t) { present[code_point] = true; });
  std::vector<char32_t> code_points;
  for (std::size_t i = 0; i < kAllCodePoints; ++i)
    if (present[i]) code_points.push_back(static_cast<char32_t>(i));
  const std::size_t sorted = code_points.size();
  return std::make_unique<CharTokenizer>(std::move(code_points), sorted);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::with(const std::vector<char32_t>& /*characters*/) const {
  fail<ValueError>("tokenizer {}: no character can be added (only to char)", name());
}

std::string list_characters(const std::vector<char32_t>& characters, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(most, characters.size()); ++i)
    text += (i == 0 ? "" : ", ") + shown(characters[i]);
  if (characters.size() > most) text += fmt::format(" and {} more", characters.size() - most);
  return text;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, TokenCover& cover) const {
  std::vector<std::int32_t> ids = encode(text);
  cover.tokens += std::ssize(ids);
  cover.bytes += std::ssize(text);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size())
      fail<ValueError>("tokenizer {}: no such id: {} (ids run from 0 to {})", name(), id, vocab_size() - 1);
    append_text(text, id);
  }
  return text;
}

std::unique_ptr<Tokenizer> ids_tokenizer(std::int64_t vocab) {
  if (vocab < 1 || vocab > kMostIds)
    fail<ValueError>("tokenizer ids: a vocabulary of {} (from 1 to {})", vocab, kMostIds);
  return std::make_unique<IdTokenizer>(vocab);
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name, std::string_view text) {
  if (name == kCharTokenizer) return char_tokenizer(text);
  if (name == kIdsTokenizer) {
    const std::vector<std::int32_t> ids = IdTokenizer(kMostIds).encode(text);
    if (ids.empty())
      fail<ValueError>("tokenizer ids: the training text has no ids (the largest one tells the vocabulary)");
    return ids_tokenizer(std::int64_t{*std::max_element(ids.begin(), ids.end())} + 1);
  }
  if (auto tokenizer = byte_tokenizer(name)) return tokenizer;
  if (is_sentencepiece_path(name)) return read_sentencepiece(std::string(name));
  fail<ValueError>("tokenizer: unknown name: '{}' (one of {}, or a .model file)", name,
                   fmt::join(kTokenizerNames, ", "));
}

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json, const std::string& name) {
  const auto value = json_of_text(json, "tokenizer: " + name);
  if (!value.is_object()) fail<FormatError>("tokenizer: {} is not a JSON object", name);
  const auto kind = value.find("name");
  if (kind == value.end() || !kind->is_string())
    fail<FormatError>("tokenizer: {} has no string \"name\"", name);
  const auto& text_name = kind->get_ref<const std::string&>();
  if (auto tokenizer = byte_tokenizer(text_name)) return tokenizer;
  if (text_name == kSentencePiece) {
    const auto model = value.find("model");
    std::optional<std::string> bytes;
    if (model != value.end() && model->is_string()) bytes = from_base64(model->get_ref<const std::string&>());
    if (!bytes) fail<FormatError>("tokenizer: {} has no \"model\" in base64", name);
    return sentencepiece_tokenizer(std::move(*bytes), name);
  }
  if (text_name == kIdsTokenizer) {
    const auto vocab = value.find("vocab");
    const bool fits = vocab != value.end() && vocab->is_number_unsigned() &&
                      vocab->get<std::uint64_t>() >= 1 &&
                      vocab->get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostIds);
    if (!fits) fail<FormatError>("tokenizer ids: {} has no \"vocab\" from 1 to {}", name, kMostIds);
    return ids_tokenizer(vocab->get<std::int64_t>());
  }
  if (text_name != kCharTokenizer)
    fail<FormatError>("tokenizer: {} names {} (one of {}, {})", name, quote_text(text_name),
                      fmt::join(kTokenizerNames, ", "), kSentencePiece);

  const auto characters = value.find("characters");
  if (characters == value.end() || !characters->is_string() ||
      characters->get_ref<const std::string&>().empty())
    fail<FormatError>("tokenizer char: {} has no string \"characters\", or an empty one", name);
  const auto& text = characters->get_ref<const std::string&>();
  std::vector<char32_t> code_points;
  for_each_character(text, [&](char32_t code_point, std::size_t offset) {
    if (!code_points.empty() && code_point <= code_points.back())
      fail<FormatError>("tokenizer char: {}: \"characters\" must rise without repeats: {} at byte offset {}",
                        name, shown(code_point), offset);
    code_points.push_back(code_point);
  });
  const std::size_t sorted = code_points.size();
  if (const auto added = value.find("added"); added != value.end()) {
    if (!added->is_string()) fail<FormatError>("tokenizer char: {}: \"added\" is no string", name);
    std::vector<char> known(kAllCodePoints);
    for (const char32_t code_point : code_points) known[code_point] = true;
    for_each_character(added->get_ref<const std::string&>(), [&](char32_t code_point, std::size_t offset) {
      if (known[code_point])
        fail<FormatError>("tokenizer char: {}: \"added\" repeats {} at byte offset {}", name,
                          shown(code_point), offset);
      known[code_point] = true;
      code_points.push_back(code_point);
    });
  }
  return std::make_unique<CharTokenizer>(std::move(code_points), sorted);
}

}  // namespace eddy::training
