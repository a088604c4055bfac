// Text is cut where SentencePiece would change it: it would replace bytes that are no UTF-8 by U+FFFD, and it
// writes a space in pieces as U+2581. Such bytes, and U+2581 itself, are encoded as byte pieces here.
#include "train/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/memory/readable_bytes.h"
#include "train/files/base64.h"
#include "train/files/text_file.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";     // U+2581, a space in pieces
constexpr const char* kUnknown = " \xe2\x81\x87 ";          // what SentencePiece writes for an unknown token
constexpr std::size_t kLongestLine = std::size_t{1} << 16;  // bytes that one call of the library gets

// The bytes that one token stands for.
std::string text_of(const sentencepiece::SentencePieceProcessor& processor, int id, bool has_bytes) {
  if (processor.IsControl(id)) return {};
  // With byte pieces nothing is unknown: the token never occurs, and is free for padding.
  if (processor.IsUnknown(id)) return has_bytes ? "" : kUnknown;
  const std::string& piece = processor.IdToPiece(id);
  if (processor.IsByte(id))  // "<0x1F>"; the library has checked the form
    return {static_cast<char>(std::strtoul(piece.c_str() + 3, nullptr, 16))};
  std::string text;
  for (std::size_t at = 0; at < piece.size();) {
    const bool space = piece.compare(at, kSpaceMark.size(), kSpaceMark) == 0;
    text += space ? ' ' : piece[at];
    at += space ? kSpaceMark.size() : 1;
  }
  return text;
}

// How many bytes at the beginning and the end of two texts are the same.
std::int64_t common_bytes(std::string_view a, std::string_view b) {
  const auto begin = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  a.remove_prefix(static_cast<std::size_t>(begin));
  b.remove_prefix(static_cast<std::size_t>(begin));
  return begin + (std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, const std::string& file) : model_(std::move(model)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (model_.empty() || !status.ok() || processor_.GetPieceSize() < 1)
      fail<FormatError>(
          "tokenizer: {} is no model of SentencePiece: {} (a .model file, as {} tokenizer train writes it)",
          file,
          model_.empty() ? "it is empty"
          : status.ok()  ? "it has no pieces"
                         : "its bytes are not those of one",
          program_name());
    byte_ids_.fill(-1);
    const int pieces = processor_.GetPieceSize();
    for (int id = 0; id < pieces; ++id)
      if (processor_.IsByte(id))
        byte_ids_[static_cast<unsigned char>(text_of(processor_, id, true).front())] = id;
    const bool has_bytes = std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
    for (int id = 0; id < pieces; ++id) texts_.push_back(text_of(processor_, id, has_bytes));
    unknown_ = processor_.unk_id();
    // A probe with everything that normalizers and dummy prefixes change: spaces around a text and runs of
    // spaces, control characters, and full-width letters.
    const std::string probe = "  a\n\n \tb  \xef\xbc\xa1 ";
    std::vector<std::int32_t> ids;
    append(probe, ids);
    exact_ = has_bytes && decode(ids) == probe;
  }

  std::string name() const override { return kSentencePiece; }
  std::int64_t vocab_size() const override { return std::ssize(texts_); }
  std::string model_file() const override { return model_; }

  std::vector<std::int32_t> encode(std::string_view text) const override { return encode(text, nullptr); }
  std::vector<std::int32_t> encode(std::string_view text, TokenCover& cover) const override {
    if (exact_) return Tokenizer::encode(text, cover);
    cover.shares.resize(texts_.size());
    std::vector<std::int32_t> ids = encode(text, &cover);
    cover.tokens += std::ssize(ids);
    cover.bytes += std::ssize(text);
    return ids;
  }

  std::string to_json() const override {
    return nlohmann::json{{"model", to_base64(model_)}, {"name", kSentencePiece}}.dump();
  }

 private:
  void append_text(std::string& text, std::int32_t id) const override {
    text += texts_[static_cast<std::size_t>(id)];
  }

  std::vector<std::int32_t> encode(std::string_view text, TokenCover* cover) const {
    std::vector<std::int32_t> ids;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
      const int bytes = utf8_at(text, at).bytes;
      const auto length = static_cast<std::size_t>(std::max(bytes, 1));
      const bool apart = bytes == 0 || (exact_ && text.substr(at, length) == kSpaceMark);
      if (apart) {
        append_stretch(text.substr(begin, at - begin), ids, cover);
        for (std::size_t i = 0; i < length; ++i) {
          ids.push_back(id_of_byte(text[at + i]));
          if (cover != nullptr) add_piece(*cover, ids.back(), text.substr(at + i, 1));
        }
        begin = at + length;
      }
      at += length;
    }
    append_stretch(text.substr(begin), ids, cover);
    return ids;
  }

  std::int32_t id_of_byte(char byte) const {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    return id >= 0 ? id : unknown_;
  }

  // Tokens of valid UTF-8.
  void append_stretch(std::string_view text, std::vector<std::int32_t>& ids, TokenCover* cover) const {
    if (!exact_) return append(text, ids, cover);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = find_line_end(text, begin, kLongestLine);
      append(text.substr(begin, end - begin), ids);
      begin = end;
    }
  }

  void append(std::string_view text, std::vector<std::int32_t>& ids, TokenCover* cover = nullptr) const {
    if (text.empty()) return;
    // The library counts in int.
    if (text.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) / 4)
      fail<ValueError>(
          "tokenizer {}: {} in one piece, and this vocabulary cannot be used line by line (cut the "
          "text into several files, or train a vocabulary with {} tokenizer train)",
          name(), readable_bytes(static_cast<double>(text.size())), program_name());
    if (cover != nullptr) return append_covered(text, ids, *cover);
    std::vector<int> part;
    const auto status = processor_.Encode(text, &part);
    if (!status.ok())
      fail<ValueError>("tokenizer {}: SentencePiece cannot split {} of the text", name(),
                       readable_bytes(static_cast<double>(text.size())));
    ids.insert(ids.end(), part.begin(), part.end());
  }

  // Tokens with the stretches of the text that they stand for, which together are the whole text.
  void append_covered(std::string_view text, std::vector<std::int32_t>& ids, TokenCover& cover) const {
    const sentencepiece::ImmutableSentencePieceText encoded = processor_.EncodeAsImmutableProto(text);
    std::size_t begin = 0, last = encoded.pieces_size();
    std::size_t first =
        0;  // of the pieces whose stretch is not known yet: of the bytes of a character the last has it
    for (std::size_t i = 0; i < last; ++i) {
      const auto piece = encoded.pieces(static_cast<int>(i));
      ids.push_back(static_cast<std::int32_t>(piece.id()));
      const bool is_last = i + 1 == last;
      const std::size_t end = std::max<std::size_t>(begin, piece.end());
      if (end == begin && !is_last) continue;
      const std::span<const std::int32_t> pieces = std::span(ids).last(i + 1 - first);
      add_pieces(cover, pieces, text.substr(begin, end - begin));
      begin = end;
      first = i + 1;
    }
    const std::string_view rest = text.substr(begin);
    if (last > 0) add_stretch(cover, ids.back(), rest);
    cover.lost_bytes += std::ssize(rest);
  }

  // Adds pieces that stand for a stretch together: each for its own text, or all of it for the last one.
  void add_pieces(TokenCover& cover, std::span<const std::int32_t> pieces, std::string_view stretch) const {
    if (decode(pieces) == stretch) {
      for (const std::int32_t id : pieces) add_piece(cover, id, texts_[static_cast<std::size_t>(id)]);
      return;
    }
    for (const std::int32_t id : pieces.first(pieces.size() - 1)) add_piece(cover, id, "");
    add_piece(cover, pieces.back(), stretch);
  }
  static void add_stretch(TokenCover& cover, std::int32_t id, std::string_view stretch) {
    TokenCover::Share& share = cover.shares[static_cast<std::size_t>(id)];
    share.bytes += std::ssize(stretch);
    share.characters += std::ssize(stretch) - std::count_if(stretch.begin(), stretch.end(), is_continuation);
  }
  void add_piece(TokenCover& cover, std::int32_t id, std::string_view stretch) const {
    const std::string_view kept = texts_[static_cast<std::size_t>(id)];
    ++cover.shares[static_cast<std::size_t>(id)].count;
    add_stretch(cover, id, stretch);
    if (id == unknown_) ++cover.unknown;
    cover.lost_bytes += std::ssize(stretch) - (id == unknown_ ? 0 : common_bytes(stretch, kept));
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> texts_;  // of each token
  std::array<std::int32_t, 256> byte_ids_;
  std::int32_t unknown_ = 0;
  bool exact_ = false;
};

}  // namespace

bool is_sentencepiece_path(std::string_view tokenizer) {
  return tokenizer.ends_with(".model");
}

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string model, const std::string& file) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model), file);
}

std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path) {
  return sentencepiece_tokenizer(read_text_file(path), path);
}

std::string long_encoding_text(std::string_view tokenizer, const std::string& vocabulary,
                               std::int64_t bytes) {
  constexpr std::int64_t kSlow = 8'000'000;
  if (tokenizer != kSentencePiece || bytes <= kSlow) return {};
  return fmt::format("{} of text become tokens of {}, some seconds for each 10 MB", decimal_bytes(bytes),
                     printable(vocabulary));
}

std::size_t find_line_end(std::string_view text, std::size_t begin, std::size_t most) {
  const std::size_t limit = std::min(text.size(), begin + most);
  std::size_t end = text.substr(0, limit).find('\n', begin);
  if (end != std::string_view::npos) {
    while (end < limit && text[end] == '\n') ++end;
    return end;
  }
  if (limit == text.size()) return limit;
  const std::size_t space = text.substr(0, limit).rfind(' ');
  if (space != std::string_view::npos && space > begin) return space;
  end = limit;
  while (end > begin && is_continuation(text[end])) --end;
  return end > begin ? end : limit;
}

}  // namespace eddy::training
