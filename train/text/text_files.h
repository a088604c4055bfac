// Which files of a path are its text, and what they hold: one file, standard input, or those of a folder and its
// subfolders.
//
// Of a folder the files *.txt, *.text, *.md and *.markdown are read, in capital letters too; where there are
// none, all that look like text. Links to files and folders are followed; a folder that is reached twice is
// read once, so that no circle is endless. Hidden files, empty ones, PDFs and other binary ones, and runs of Eddy
// are left out. Several paths are read as a folder that holds what they name, in their order.
//
// Documents may also be the subfolders, such as repositories of source code: the files of each, those of its own
// subfolders too, joined in the order of their names. Then all files that look like text are read. A file beside the
// subfolders is a document of its own.
// source: Hutchins et al., "Block-recurrent transformers" (2022), section 4: all files of a repository as one document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace eddy::training {

struct TextFile {
  std::string name;                // the path below the folder, with '/'
  std::string path;                // where it is
  std::string encoding{};          // UTF-16LE, ... (text_encoding.h); empty for UTF-8
  std::vector<TextFile> joined{};  // of a folder that is one document: its files
};

// data.document.
inline DocumentUnit document_unit(const DataConfig& config) {
  return value_named<DocumentUnit>(config.document).value_or(DocumentUnit::file);
}

struct LeftOut {
  std::string name, why;
};

struct TextFiles {
  std::vector<TextFile> files;  // in the order of their names
  std::vector<LeftOut> left_out;
  bool folder = false;         // not one file
  bool other_endings = false;  // texts are left out for their endings alone
  bool all_utf8 = false;       // looked at whole, all files are UTF-8, or become it by their byte order mark
};

// The text files of a folder, or the one file that a path names; with `json_lines` *.jsonl and *.ndjson are among those
// that are read of a folder.
// errors: IoError when a path is missing, cannot be read, or holds no text, and for a text of a folder that cannot be
// read; FormatError for a named file that is no text (train/files/file_kind.h).
TextFiles list_text_files(const DataPaths& paths, DocumentUnit unit = DocumentUnit::file,
                          bool json_lines = false);

// The files that the texts consist of: those of joined folders one by one.
std::vector<TextFile> single_files(const std::vector<TextFile>& texts);

// The path of a file for people.
std::string shown_path(const TextFile& file);

// The bytes of a file as they are.
// errors: IoError.
std::string bytes_of(const TextFile& file);

// The text of a file as UTF-8, without a byte order mark (text_encoding.h). The files of a joined folder end with a
// newline, which is added where it is missing.
// errors: IoError; FormatError.
std::string text_of(const TextFile& file);

// The texts one after another. Those of a folder end with a newline, which is added where it is missing.
std::string text_of(const TextFiles& texts);

// The text of a path.
// errors: as list_text_files and text_of.
std::string read_text(const std::string& path);

// What was read and what was not: "7 files: 5 read (30.8 MB, UTF-8, 1 from UTF-16LE)", and
// ", left out: paper.pdf (PDF), empty.txt (empty)" or nothing.
std::string describe_read(const TextFiles& texts, std::int64_t bytes);
std::string describe_left_out(const TextFiles& texts);

// The subfolders of a data set that is published with its splits, such as PG19.
struct SplitFolder {
  std::string train, valid, test;  // test is empty where there is none
};

// The subfolders train, valid (or validation, val, dev) and test of a folder; nullopt for a file, and for a folder that
// does not have both train and valid.
std::optional<SplitFolder> find_splits(const std::string& path);
// Whether a folder has train and test, and no subfolder to validate on: then all of it is one text.
bool lacks_validation(const std::string& path);

}  // namespace eddy::training
