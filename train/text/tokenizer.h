// Text to token ids and back. Four vocabularies need no training; subwords do (sentencepiece_tokenizer.h).
//
//   char      the code points of one text, and those that were added for others
//   byte      the 256 bytes
//   byte260   id = byte + 3, so that ids 0..2 are free for special tokens
//   ids       the text is the ids, whole numbers with white space between, as another program's tokenizer made them
//
// decode(a followed by b) = decode(a) + decode(b), so ids can be decoded one by one. With byte vocabularies
// an id may be a part of a UTF-8 character: write the bytes in order, and the characters are whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/config/tokenizer_names.h"

namespace eddy::training {

// What the tokens of a text stand for in it. A vocabulary covers the text if none is unknown and no byte is lost.
struct TokenCover {
  std::int64_t tokens = 0, unknown = 0;
  std::int64_t bytes = 0;       // of the text
  std::int64_t lost_bytes = 0;  // of them, those that the tokens do not give back
  // How often a token occurs, and the bytes and characters of the text behind it.
  struct Share {
    std::int64_t count = 0, bytes = 0, characters = 0;
  };
  std::vector<Share> shares;  // by id; empty when every token stands for what it decodes to
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Its name: one of kTokenizerNames, or kSentencePiece.
  virtual std::string name() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  // The ids of a text.
  // errors: char: FormatError at invalid UTF-8, ValueError at a character outside the vocabulary, both with
  // the byte offset; ids: ValueError at a word that is no id. The byte vocabularies take every text.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // The same, and adds what the tokens stand for to `cover`. The vocabularies here but those of SentencePiece
  // cover every text that they encode.
  // errors: as encode.
  virtual std::vector<std::int32_t> encode(std::string_view text, TokenCover& cover) const;
  // The text with a stand-in for everything that encode would refuse: '?' or else a space, or else nothing, whichever
  // the vocabulary has. Adds what was replaced to `replaced`, once each: 'x' (U+0078). `ids` leaves words that are no
  // ids out; the other vocabularies refuse nothing.
  virtual std::string with_known(std::string_view text, std::vector<std::string>& /*replaced*/) const {
    return std::string(text);
  }
  // The bytes of the ids.
  // errors: ValueError for an id outside 0..vocab_size-1.
  std::string decode(std::span<const std::int32_t> ids) const;
  // The bytes of one id, for printing while generating.
  std::string decode_one(std::int32_t id) const { return decode({&id, 1}); }
  // Everything needed to build the tokenizer again, as one line of JSON with sorted keys.
  virtual std::string to_json() const = 0;
  // The characters of a text that have no id, each once, rising; only those of `char` can be without.
  // errors: FormatError at invalid UTF-8.
  virtual std::vector<char32_t> missing_in(std::string_view /*text*/) const { return {}; }
  // This vocabulary with further characters, whose ids follow the others. Only for `char`.
  // errors: ValueError for another vocabulary.
  virtual std::unique_ptr<Tokenizer> with(const std::vector<char32_t>& characters) const;
  // The vocabulary as a file that other programs read (SentencePiece's .model); "" when there is no such
  // form.
  virtual std::string model_file() const { return {}; }

 private:
  // Appends the bytes of an id of the vocabulary.
  virtual void append_text(std::string& text, std::int32_t id) const = 0;
};

// Characters for people: "'é' (U+00E9), U+000A", at most `most` of them and how many more.
std::string list_characters(const std::vector<char32_t>& characters, std::size_t most = 20);

// A tokenizer by name, or by the path of a SentencePiece .model file. `char` takes its vocabulary from
// `text`: the sorted distinct code points, id = rank; `ids` the number of its ids: the largest of them and one.
// errors: ValueError for an unknown name or, for char and ids, an empty text; FormatError when a char text is not
// UTF-8, or a file is no model; IoError.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name, std::string_view text);

// The tokenizer "ids" of so many ids.
// errors: ValueError where there are none, or more than an i32 can number.
std::unique_ptr<Tokenizer> ids_tokenizer(std::int64_t vocab);

// The tokenizer that `to_json` described; errors call the JSON `name`.
// errors: FormatError when the JSON does not describe one.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json,
                                               const std::string& name = "the description");

}  // namespace eddy::training
