// Whole text files: read at once, or replaced atomically. A reader, or a crash at any moment, sees the old
// text or the new one, never a part (see tensor/files/atomic_file.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace eddy::training {

// The bytes of a regular file of at most `most` bytes: no file that Eddy writes as a text is larger.
// errors: those of InputFile (tensor/files/input_file.h).
std::string read_text_file(const std::filesystem::path& path, std::int64_t most = std::int64_t{1} << 32);

// The JSON value of a file.
// errors: as read_text_file; FormatError when it is not JSON (tensor/files/strict_json.h).
nlohmann::json read_json_file(const std::filesystem::path& path);

// Refuses a file that holds `object` unless the object's key "format" is this number. `file` begins the error.
// errors: FormatError.
void check_format(const nlohmann::json& object, const std::string& file, int format);

// An object of JSON as the text of a file, with its format and the digest of what it holds (digest.h) as its keys
// "format" and "digest".
std::string text_with_digest(nlohmann::json object, int format);
// The object of such a file, without its digest.
// errors: as read_json_file; FormatError for another format, and where it holds something else than was written.
nlohmann::json read_json_with_digest(const std::filesystem::path& path, int format);

// Replaces (or creates) the file with `text`. On an error the old file is unchanged and no temporary file is
// left.
// errors: IoError when the folder is missing, the disk is full, or the system refuses.
void replace_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace eddy::training
