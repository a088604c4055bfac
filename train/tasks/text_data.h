// The tokens of a text task, with their tokenizer: one text, or the separate files of a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/tasks/task.h"
#include "train/text/text_phase.h"
#include "train/text/tokenizer.h"

namespace eddy::training {

// The parts of one phase of a text (train/text/text_phase.h).
struct DataPhase {
  std::int64_t first = 0, parts = 0;              // among those of the data
  std::int64_t train_parts = 0, valid_parts = 0;  // of a folder with its own splits, which come first
  bool joined = false;                            // one part holds all its files
};

struct TextData {
  std::string name;    // "tinyshakespeare", "stories", or the path the user gave
  std::string sha256;  // of the text; of a folder, of its files' names and contents
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::int32_t> tokens;      // of all files, concatenated
  std::vector<std::int64_t> ends;        // the index in `tokens` where each file ends; one entry for one text
  std::vector<std::string> files;        // the names of the files; empty for one text
  std::vector<TextPhase> source_phases;  // Task::data_phases
  TokenCover cover;                      // what the tokens stand for
  std::vector<DataPhase> phases;         // of texts from data.path
  bool grown = false;                    // the last phase begins now
  // The number of training and validation files of a folder with subfolders for its splits
  // (find_splits in train/text/text_files.h). The files after them are the test split, which only an evaluation reads.
  // 0: data.split and data.test cut the splits.
  std::int64_t train_parts = 0, valid_parts = 0;

  std::int64_t parts() const { return std::ssize(ends); }
  bool has_splits() const { return train_parts > 0; }
  std::span<const std::int32_t> part(std::int64_t index) const;
  void add_part(std::span<const std::int32_t> part, const std::string& file);
};

// The data of several phases as those of a folder with its own splits. Each phase is cut on its own: what was trained
// on is never validated later, and what was read first stays first, so that positions in it hold. A text that the
// rows of a stream share is their spans.
TextData with_own_splits(TextData data, const RunConfig& config, bool training);

// The tokens of the text that config.data names, made by the tokenizer in the arguments (which is moved out
// of them) or else by a new one. With data.order = "windows" a folder is read as one text; with "stream" and
// "documents" its files stay separate. A folder with subfolders train and valid has its own splits in every order,
// and its digest does not cover the test split. A run that goes on reads the files that it was trained on, and finds a
// relative path in the folder where it was made. A warning says what a vocabulary loses of the text.
// errors: IoError, FormatError and ValueError for a text that cannot be read or has no tokens; ConfigError
// when the data are not those of the run, when the tokenizer is not the one that the config names, or when it lacks
// characters of texts that came into the folder.
TextData read_text_data(TaskArguments& arguments);

}  // namespace eddy::training
