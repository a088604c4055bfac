// The tokens of a text task, with their tokenizer: one text, or the separate files of a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/tasks/task.h"
#include "train/text/tokenizer.h"

namespace eddy {

struct TextData {
  std::string name;    // "tinyshakespeare", "stories", or the path the user gave
  std::string sha256;  // of the text; of a folder, of its files' names and contents
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::int32_t> tokens;  // of all files, concatenated
  std::vector<std::int64_t> ends;    // the index in `tokens` where each file ends; one entry for one text
  std::vector<std::string> files;    // the names of the files; empty for one text
  std::vector<std::string> source_files;  // of a folder: Task::data_files
  TokenCover cover;                       // what the tokens stand for
  // The number of training and validation files of a folder with subfolders for its splits
  // (find_splits in train/text/text_files.h). The files after them are the test split, which only an evaluation reads.
  // 0: data.split and data.test cut the splits.
  std::int64_t train_parts = 0, valid_parts = 0;

  std::int64_t parts() const { return std::ssize(ends); }
  bool has_splits() const { return train_parts > 0; }
  std::span<const std::int32_t> part(std::int64_t index) const;
};

// The tokens of the text that config.data names, made by the tokenizer in the arguments (which is moved out
// of them) or else by a new one. With data.order = "windows" a folder is read as one text; with "stream" and
// "documents" its files stay separate. A folder with subfolders train and valid has its own splits in every order,
// and its digest does not cover the test split. A run that goes on reads the files that it was trained on, as the
// version read them that made it, and finds a relative path in the folder where it was made. A warning says what a
// vocabulary loses of the text.
// errors: IoError, FormatError and ValueError for a text that cannot be read or has no tokens; ConfigError
// when the data are not those of expected_sha256, or the tokenizer is not the one that the config names.
TextData read_text_data(TaskArguments& arguments);

}  // namespace eddy
