// The names of the tokenizers, which data.tokenizer takes beside the path of a SentencePiece .model file.
#pragma once

namespace eddy::training {

inline constexpr const char* kCharTokenizer = "char";
inline constexpr const char* kByteTokenizer = "byte";
inline constexpr const char* kByte260Tokenizer = "byte260";
inline constexpr const char* kIdsTokenizer = "ids";
// All of them, as lists show them.
inline constexpr const char* kTokenizerNames[] = {kCharTokenizer, kByteTokenizer, kByte260Tokenizer,
                                                  kIdsTokenizer};

}  // namespace eddy::training
