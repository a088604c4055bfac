// The char and byte vocabularies, and the JSON form of all tokenizers:
//
//   {"name":"byte"}
//   {"characters":"...","name":"char"}
//   {"model":"(base64)","name":"sentencepiece"}
#include "train/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/strict_json.h"
#include "train/files/base64.h"
#include "train/files/utf8.h"
#include "train/text/sentencepiece_tokenizer.h"

namespace eddy {
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

class CharTokenizer final : public Tokenizer {
 public:
  // `code_points` is sorted and without repeats.
  explicit CharTokenizer(std::vector<char32_t> code_points) : code_points_(std::move(code_points)) {
    ascii_.fill(-1);
    for (std::size_t rank = 0; rank < code_points_.size() && code_points_[rank] < 128; ++rank)
      ascii_[code_points_[rank]] = static_cast<std::int32_t>(rank);
  }

  std::string name() const override { return "char"; }
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

  std::string to_json() const override {
    std::string characters;
    for (const char32_t code_point : code_points_) append_utf8(characters, code_point);
    return nlohmann::json{{"name", "char"}, {"characters", characters}}.dump();
  }

 private:
  void append_text(std::string& text, std::int32_t id) const override {
    append_utf8(text, code_points_[static_cast<std::size_t>(id)]);
  }

  std::int32_t rank_of(char32_t code_point) const {
    if (code_point < 128) return ascii_[code_point];
    const auto at = std::lower_bound(code_points_.begin(), code_points_.end(), code_point);
    return at != code_points_.end() && *at == code_point
               ? static_cast<std::int32_t>(at - code_points_.begin())
               : -1;
  }

  std::vector<char32_t> code_points_;
  std::array<std::int32_t, 128> ascii_;  // id of an ASCII character, -1 when it is unknown
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
  if (name == "byte") return std::make_unique<ByteTokenizer>("byte", 256, 0);
  // 260 = 256 bytes + 3 reserved ids, rounded up to a multiple of four. Id 259 is unused and decodes to "".
  if (name == "byte260") return std::make_unique<ByteTokenizer>("byte260", 260, 3);
  return nullptr;
}

std::unique_ptr<Tokenizer> char_tokenizer(std::string_view text) {
  if (text.empty())
    fail<ValueError>("tokenizer char: the training text is empty (its characters are the vocabulary)");
  // One flag per code point: 136 KiB, and no sort of the text.
  constexpr std::size_t kCodePoints = 0x110000;
  std::vector<bool> present(kCodePoints);
  for_each_character(text, [&](char32_t code_point, std::size_t) { present[code_point] = true; });
  std::vector<char32_t> code_points;
  for (std::size_t i = 0; i < kCodePoints; ++i)
    if (present[i]) code_points.push_back(static_cast<char32_t>(i));
  return std::make_unique<CharTokenizer>(std::move(code_points));
}

}  // namespace

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

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name, std::string_view text) {
  if (name == "char") return char_tokenizer(text);
  if (auto tokenizer = byte_tokenizer(name)) return tokenizer;
  if (is_sentencepiece_path(name)) return read_sentencepiece(std::string(name));
  fail<ValueError>("tokenizer: unknown name: '{}' (one of char, byte, byte260, or a .model file)", name);
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
  if (text_name != "char")
    fail<FormatError>("tokenizer: {} names {} (one of char, byte, byte260, sentencepiece)", name,
                      quote_text(text_name));

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
  return std::make_unique<CharTokenizer>(std::move(code_points));
}

}  // namespace eddy
