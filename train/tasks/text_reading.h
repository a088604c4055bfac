// The files of a text task: which ones they are, in which order they are read, and what they hold in all. A run that
// goes on gets the files that it was trained on, wherever it finds them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/tasks/task.h"
#include "train/text/documents.h"
#include "train/text/text_files.h"
#include "train/text/text_phase.h"

namespace eddy::training {

// The files of one phase. Their names in `about` are those of the beginning of the phase.
struct ReadPhase {
  TextPhase about;
  std::vector<TextFile> files;  // in the order of about.parts
  bool separate = false;        // they stay separate; else `text` has them joined
  std::string text;
};

struct Reading {
  std::string path;               // for people
  std::vector<ReadPhase> phases;  // at least one
  TextFiles files;                // of all phases, and what is left out
  std::string test;               // the folder of the test split, if there is one
  std::string sha256;
  std::int64_t bytes = 0;
  CutRule cut;             // of all its files
  bool end_lines = false;  // documents of a file end with a newline, since they are joined
  std::int64_t documents = 0, short_documents = 0;  // where files are cut: all, and those that are left out
  std::string how;                                  // where it is not as usual: ", ..."
  bool grown = false;                               // the last phase begins now

  bool has_splits() const { return phases.front().about.has_splits(); }
};

// The documents of a file.
Documents documents_of(const TextFile& file, const Reading& reading);

// The text that config.data.path names or, for a run that goes on, the one that it was trained on. With
// arguments.may_grow the files that came into its folder since are a new phase, else they are left out.
// errors: IoError and FormatError for texts that cannot be read; ConfigError when they are not those of the run: it
// says which files are changed or gone.
Reading find_reading(const TaskArguments& arguments);

// Throws the error for another text than that of the run.
[[noreturn]] void fail_other_text(const TaskArguments& arguments, const std::string& name,
                                  const std::string& sha256);

}  // namespace eddy::training
