// Folders that outlast a power cut: made, and flushed to disk.
#pragma once

#include <filesystem>
#include <string>

namespace eddy::training {

// Makes a folder and those above it that are missing, and flushes each folder in which one was made.
// errors: IoError.
void make_folders(const std::filesystem::path& folder);

// Flushes the names in a folder to disk. Does nothing on a file system that cannot, and for a folder that may
// be written but not read.
// errors: IoError.
void flush_folder(const std::filesystem::path& folder);

// Renames a file, a folder or a link to NAME.aside, or NAME.aside-N where that is taken: it may be the user's. Returns
// the new name; empty when it could not be renamed.
std::string set_aside(const std::filesystem::path& path);

}  // namespace eddy::training
