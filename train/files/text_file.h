// Whole text files: read at once, or replaced atomically. A reader, or a crash at any moment, sees the old
// text or the new one, never a part (see tensor/files/atomic_file.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace eddy {

// The bytes of a file.
// errors: IoError when it cannot be opened or read.
std::string read_text_file(const std::filesystem::path& path);

// Replaces (or creates) the file with `text`. On an error the old file is unchanged and no temporary file is
// left.
// errors: IoError when the folder is missing, the disk is full, or the system refuses.
void replace_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace eddy
