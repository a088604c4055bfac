// The file `digests` of a checkpoint: what every other file in its folder was when it was saved, one line a
// file, sorted by name, two spaces between the fields:
//
//   <XXH3 digest of 128 bits, 32 hexadecimal digits>  <size in bytes>  <name>
//
// It is written last. A checkpoint without it is not whole: a warning says so where only its model is read, and no
// training goes on from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/files/input_file.h"

namespace eddy::training {

inline constexpr const char* kDigestsFile = "digests";

// Writes the file `digests` of a folder and flushes it to disk.
// errors: IoError.
void write_digests(const std::filesystem::path& folder);

// Checks that a file of a checkpoint is the one that was saved, and returns whether it exists.
// errors: FormatError when the file was changed, or added later, when it is missing though it was saved, and
// for a damaged `digests`, and for a missing one but for state.json and model.safetensors;
// IoError when either cannot be read.
bool check_saved_file(const std::filesystem::path& checkpoint, const std::string& name);
// The same for a file that is open.
void check_saved_file(const std::filesystem::path& checkpoint, const std::string& name,
                      const InputFile& file);

enum class FileCondition {
  whole,       // what its digest says
  damaged,     // not what was saved, or not where it was saved
  missing,     // saved, and gone
  unreadable,  // the system refused to read it
};

struct FileCheck {
  std::filesystem::path file;
  FileCondition condition = FileCondition::whole;
  std::int64_t bytes = 0;
  std::string problem{};  // what is wrong with it; empty when nothing is
};

// The condition of every file of a checkpoint, by name; without good digests that of the digests alone. Never
// throws for what is wrong with a file.
std::vector<FileCheck> check_checkpoint(const std::filesystem::path& checkpoint);

// Whether nothing is wrong with any file of a checkpoint.
bool is_whole(const std::filesystem::path& checkpoint);

}  // namespace eddy::training
