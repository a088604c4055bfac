// What a table makes once, before its rows run: the text that it writes for itself, and the vocabularies of rows whose
// data.tokenizer is kOwnVocabulary, from the documents that its rows are trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "train/app/reproduce/reproduce.h"

namespace eddy::app {

// The place of the text that a table makes for itself, below its folder: a file, or a folder of documents.
std::filesystem::path text_path(const ReproduceTable& table, const std::filesystem::path& folder);

// Writes that text, if the table has one and it is not there.
// errors: ConfigError where there is another; ValueError for a source of fewer than two stories; IoError.
void prepare_text(const ReproduceTable& table, const std::filesystem::path& folder,
                  const std::function<void(std::string_view)>& log);

// The file of a vocabulary of so many pieces, below the folder of a table.
std::string vocabulary_path(const std::filesystem::path& folder, std::int64_t pieces);

// The configuration by which a row can be checked before its vocabulary is made: until then with bytes as tokens. A
// model of the right size has row.pieces of them.
training::RunConfig without_vocabulary(const ReproduceRow& row, const std::filesystem::path& folder);

// The file of a vocabulary that a row reads and no one has made yet: it is not that of the table; empty where it is
// there.
std::string missing_vocabulary(const ReproduceRow& row, const std::filesystem::path& folder);

// Makes the vocabulary of a row, if the row has one of its table's own and it is not there. Documents of a folder are
// those of its subfolder train or, without it, the first ones by data.split; of one file it is that part of its lines.
// errors: ConfigError where there is one from other texts; those of reading texts and of train_vocabulary.
void prepare_vocabulary(const ReproduceRow& row, const std::filesystem::path& folder,
                        const std::function<void(std::string_view)>& log);

}  // namespace eddy::app
