// SentencePiece vocabularies: subwords, from a .model file that `eddy tokenizer train` or any other program
// of SentencePiece wrote.
// Source: Kudo and Richardson, "SentencePiece: a simple and language independent subword tokenizer" (2018);
// the work is done by its library.
//
// Vocabularies made here (see vocabulary_training.h) are exact: decode(encode(text)) = text for all bytes, as
// what no piece stands for is written in 256 byte pieces, and encode works line by line, so that long texts
// take little memory. A vocabulary with a normalizer of its own, or a space in front of every text, keeps its
// rules: it sees a text as a whole, and what it changes or leaves out stays so.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "train/text/tokenizer.h"

namespace eddy {

inline constexpr const char* kSentencePiece = "sentencepiece";  // the name of such tokenizers

// Whether data.tokenizer names a .model file instead of a vocabulary.
bool names_sentencepiece(std::string_view tokenizer);

// The tokenizer of a .model file's bytes; `file` stands for them in errors.
// errors: FormatError when they are no model of SentencePiece.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string model, const std::string& file);

// The tokenizer of a .model file.
// errors: IoError when it cannot be read; FormatError.
std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path);

// One line of text for SentencePiece: where a piece of `text` that begins at `begin` ends. It ends behind a
// run of newlines, so that no token reaches from one line into the next, or after at most `most` bytes: there
// in front of a space, if there is one, and never inside a character.
std::size_t end_of_line(std::string_view text, std::size_t begin, std::size_t most);

}  // namespace eddy
