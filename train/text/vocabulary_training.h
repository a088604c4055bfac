// SentencePiece vocabularies made from texts: byte-pair encoding (Sennrich et al. 2016) or a unigram model
// (Kudo 2018), by the library of Kudo and Richardson (2018).
//
//   token 0   <unk>, never written, so free for padding        3 .. 258   the 256 bytes
//   token 1   <s>                                              259 ..     pieces
//   token 2   </s>
//
// No normalization, no space in front; digits stand alone; pieces may be spaces only, and none reaches from
// one line into the next. Every character of the texts has a piece, unless there are so many that they would
// take more than half of the room: then the most frequent ones do, and the others are written as bytes. Tabs
// and NUL are always bytes: the library keeps them for itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/text/corpus.h"

namespace eddy {

struct VocabularyOptions {
  std::int64_t size = 32000;                          // tokens in all
  std::string type = "bpe";                           // bpe | unigram
  std::int64_t most_bytes = std::int64_t{256} << 20;  // of texts; of more, lines are taken evenly
};

struct TrainedVocabulary {
  std::string model;            // what is to be written to the .model file
  std::int64_t bytes = 0;       // of the texts
  std::int64_t used_bytes = 0;  // of the lines that were trained on
  std::int64_t characters = 0;  // different ones in the texts
  std::int64_t as_bytes = 0;    // of these, that have no piece
};

// A vocabulary for the texts; the same one for the same texts and options.
// errors: ValueError for sizes outside 512 to 2^20, an unknown type, texts that give no vocabulary of this
// size (how much they give is named); IoError.
TrainedVocabulary train_vocabulary(const std::vector<TextFile>& files, const VocabularyOptions& options);

// The files a vocabulary is made from: those of a path, or, where it is a folder with subfolders train and
// valid, those of train.
// errors: as list_text_files.
std::vector<TextFile> vocabulary_files(const std::string& path);

}  // namespace eddy
