// Text for language modelling: reading files and folders, splitting, random training batches and validation
// windows. A window has `sequence` inputs; its targets are the tokens one place later:
//
//   inputs    t[w] ... t[w + sequence - 1]
//   targets   t[w + 1] ... t[w + sequence]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "train/files/mapped_file.h"

namespace eddy {

// Owns a text: a mapped file, or a string put together from several files or generated.
class Text {
 public:
  explicit Text(std::string bytes) : source_(std::move(bytes)) {}
  explicit Text(MappedFile file) : source_(std::move(file)) {}
  // Valid while this object lives and is not moved.
  std::string_view view() const;

 private:
  std::variant<std::string, MappedFile> source_;
};

// The text of a file, or of a folder: its *.txt files in the order of their names or, if there are none, its
// other text files (no NUL in the first 4096 bytes). Names that start with '.' are left out. The files of a
// folder are joined; a missing newline at the end of a file is added.
// errors: IoError when the path is missing, cannot be read, or holds no text.
Text read_text(const std::string& path);

// A file of a text data set that keeps its files apart.
struct TextFile {
  std::string name;  // the path below the folder, with '/'
  std::string path;  // where it is
};

struct TextFiles {
  std::vector<TextFile> files;
  std::int64_t empty = 0;  // how many empty files were left out
};

// The text files below a folder (without its subfolders when `subfolders` is false), or the one file that
// `path` names, in the order of their names: *.txt files or, if there are none, other text files, as in
// read_text. Folders whose name starts with '.', links to folders and empty files are left out.
// errors: as read_text.
TextFiles list_text_files(const std::string& path, bool subfolders = true);

// The subfolders of a data set that is published with its splits, such as PG19.
struct SplitFolder {
  std::string train, valid, test;  // test is empty where there is none
};

// The subfolders train, valid (or validation) and test of a folder; nullopt for a file, and for a folder that
// does not have both train and valid.
std::optional<SplitFolder> find_splits(const std::string& path);

// How many of `length` tokens are for training: floor(train_fraction * length).
// errors: ValueError unless 0 < train_fraction < 1, or when a split has fewer than sequence + 1 tokens.
std::int64_t training_part(std::int64_t length, double train_fraction, std::int64_t sequence);

// Fills inputs and targets, both [batch, sequence], with windows that start at independent, uniformly drawn
// positions of `tokens`. The draw for row r is a pure function of (seed, step, micro * batch + r): a resumed
// run sees the same order, and a step of 2 micro-batches of 8 rows sees the same windows as one of 16.
// errors: ValueError when a size is not positive or tokens has fewer than sequence + 1 entries.
void sample_batch(std::span<const std::int32_t> tokens, std::uint64_t seed, std::uint64_t step,
                  std::uint64_t micro, std::int64_t batch, std::int64_t sequence, std::int32_t* inputs,
                  std::int32_t* targets);

// The number of non-overlapping windows: floor((tokens - 1) / sequence), 0 for an empty split.
// errors: ValueError when sequence < 1.
std::int64_t window_count(std::int64_t tokens, std::int64_t sequence);

// Fills inputs and targets, both [windows, sequence], with the windows first .. first + windows - 1. Window w
// starts at token w * sequence.
// errors: ValueError when they are not all among the window_count windows of `tokens`.
void read_windows(std::span<const std::int32_t> tokens, std::int64_t sequence, std::int64_t first,
                  std::int64_t windows, std::int32_t* inputs, std::int32_t* targets);

}  // namespace eddy
