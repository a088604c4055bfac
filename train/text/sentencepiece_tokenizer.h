// SentencePiece tokenizers: subword vocabularies from a .model file, which `eddy tokenizer train` or any
// other SentencePiece program wrote. The SentencePiece library does the work.
// Source: Kudo and Richardson, "SentencePiece: a simple and language independent subword tokenizer" (2018).
//
// Vocabularies made here (see vocabulary_training.h) are lossless: decode(encode(text)) = text for all bytes,
// because bytes without a piece of their own are encoded as one of 256 byte pieces. They encode line by line,
// so long texts take little memory. A vocabulary with its own normalizer, or with a space before every text,
// keeps its rules: it encodes a text as a whole, and what it changes or leaves out is lost.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "train/text/tokenizer.h"

namespace eddy::training {

inline constexpr const char* kSentencePiece = "sentencepiece";  // Tokenizer::name() of these

// Whether a value of data.tokenizer is the path of a .model file, not the name of a built-in vocabulary.
bool is_sentencepiece_path(std::string_view tokenizer);

// The tokenizer of a .model file's bytes; errors call them `file`.
// errors: FormatError when they are no SentencePiece model.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string model, const std::string& file);

// The tokenizer of a .model file.
// errors: IoError when it cannot be read; FormatError.
std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path);

// What to say before a tokenizer of this name() encodes so many bytes: "30.8 MB of text become tokens of v.model, some
// seconds for each 10 MB". Empty where that takes less than two seconds. `vocabulary` is what the user calls it.
std::string long_encoding_text(std::string_view tokenizer, const std::string& vocabulary, std::int64_t bytes);

// The end of the line of `text` that begins at `begin`, for handing long texts to SentencePiece in parts. A
// line ends after a run of newlines, so that no token spans two lines, or after at most `most` bytes: then
// before a space, if there is one, and never inside a character.
std::size_t find_line_end(std::string_view text, std::size_t begin, std::size_t most);

}  // namespace eddy::training
