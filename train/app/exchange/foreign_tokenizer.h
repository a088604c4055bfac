// Tokenizers as Hugging Face's files and GGUF files hold them. SentencePiece's vocabularies go along in both forms.
// Characters and bytes are a tokenizer.json: each character a word (WordLevel) that stands alone, and bytes as pieces
// without merges (BPE with byte_fallback). GGUF files have no such tokenizers.
// Token ids (`ids`) have none in either form.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "train/app/exchange/gguf.h"
#include "train/text/tokenizer.h"

namespace eddy::app {

// The files of a tokenizer in a folder of Hugging Face's form, by name. `context`: the most tokens that its model was
// made for.
std::map<std::string, std::string> huggingface_tokenizer(const training::Tokenizer& tokenizer,
                                                         std::int64_t context);
// The tokenizer of a folder that Eddy exported, in either form, or of SentencePiece; null where there is none.
// errors: FormatError for one of another kind.
std::unique_ptr<training::Tokenizer> tokenizer_of_folder(const std::filesystem::path& folder);

// Refuses a tokenizer that GGUF files do not have.
// errors: ConfigError with the reason.
void check_gguf_tokenizer(const training::Tokenizer& tokenizer);
// The values that hold a tokenizer of SentencePiece, filled up to the `vocab` tokens of the model; of null, the tokens'
// number alone.
GgufValues gguf_tokenizer(const training::Tokenizer* tokenizer, std::int64_t vocab);
// The tokenizer of values that Eddy wrote; null where there is none. Errors call the file `name`.
// errors: FormatError for a damaged one.
std::unique_ptr<training::Tokenizer> tokenizer_of_gguf(const GgufValues& values, const std::string& name);

}  // namespace eddy::app
