// Training SentencePiece vocabularies on texts: byte-pair encoding (Sennrich et al. 2016) or a unigram model
// (Kudo 2018), by the library of Kudo and Richardson (2018).
//
//   token 0    <unk>, never produced, so free for padding
//   token 1    <s>
//   token 2    </s>
//   3 .. 258   the 256 bytes
//   259 ..     pieces
//
// There is no normalization and no space added before a text. Every digit is a token of its own; pieces may
// consist of spaces, and no piece spans two lines. Every character of the texts has a piece, unless
// characters would take more than half of the vocabulary: then only the most frequent ones have one, and the
// others are encoded as bytes. Tabs and NUL are always bytes: the library reserves them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/value_names.h"
#include "train/text/documents.h"
#include "train/text/text_files.h"

namespace eddy::training {

// How a vocabulary is trained.
enum class VocabularyType { bpe, unigram };

}  // namespace eddy::training

// Their names, in the order of the values.
template <>
struct eddy::ValueNames<eddy::training::VocabularyType> {
  static constexpr const char* all[] = {"bpe", "unigram"};
};

namespace eddy::training {

struct VocabularyOptions {
  std::int64_t size = 32000;  // tokens in all
  std::string type = value_name(VocabularyType::bpe);
  std::int64_t most_bytes = std::int64_t{256} << 20;  // of texts; of larger ones an even sample of lines
  CutRule cut{};                                      // of the files
};

struct TrainedVocabulary {
  std::string model;               // the content of the .model file
  std::int64_t bytes = 0;          // of the texts
  std::int64_t used_bytes = 0;     // of the lines that were trained on
  std::int64_t characters = 0;     // distinct ones in the texts
  std::int64_t without_piece = 0;  // those of them that have no piece
};

// A vocabulary trained on the texts; deterministic in texts and options.
// errors: ValueError for sizes outside 512 to 2^20, an unknown type, and texts too small for this size (the
// error names the largest size they allow); ConfigError for a separator or a field that does not occur; IoError.
TrainedVocabulary train_vocabulary(const std::vector<TextFile>& files, const VocabularyOptions& options);

// The files to train a vocabulary on: those of a path or, when it is a folder with subfolders train and
// valid, those of train.
// errors: as list_text_files.
TextFiles vocabulary_files(const std::string& path, DocumentUnit unit = DocumentUnit::file,
                           bool json_lines = false);

}  // namespace eddy::training
