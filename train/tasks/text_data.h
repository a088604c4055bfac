// The tokens of a text task: of one text, or of the files of a folder kept apart, with the tokenizer that
// made them.
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
  std::vector<std::int32_t> tokens;  // of all files, one after the other
  std::vector<std::int64_t> ends;    // where each file ends in them; one entry for one text
  std::vector<std::string> files;    // their names; empty for one text
  // Of a folder with subfolders for its splits (see split_folder.h): the first files are for training, the
  // next validate, the rest, read only to measure, are for the test. 0: the splits are cut by data.split and
  // data.test.
  std::int64_t train_parts = 0, valid_parts = 0;

  std::int64_t parts() const { return static_cast<std::int64_t>(ends.size()); }
  bool has_splits() const { return train_parts > 0; }
  std::span<const std::int32_t> part(std::int64_t index) const;
};

// Reads the text that config.data names and turns it into tokens, by the tokenizer in the arguments (it is
// moved out of them) or else by a new one. With order windows a folder is one text; with stream and documents
// its files, those in subfolders too, stay apart. A folder with subfolders train and valid brings its splits
// in every order. The digest of such data leaves the test out.
// errors: IoError, FormatError and ValueError for a text that cannot be read or has no tokens; ConfigError
// when it is other data than it must be (same_data_as), or the tokenizer is not the one that the config
// names.
TextData read_text_data(TaskArguments& arguments);

}  // namespace eddy
