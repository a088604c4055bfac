// What Eddy may overwrite: only files that it wrote itself. A page, a session or a dump replaces one of its kind,
// an empty file or nothing.
#pragma once

#include <string>
#include <string_view>

namespace eddy::training {

// A kind of file that Eddy writes. `is_one` looks into a regular file; an exception counts as no.
struct OutputKind {
  const char* name;  // for errors: "a session"
  bool (*is_one)(const std::string& path);
};

// The kind of an output that overwrites nothing.
inline constexpr OutputKind kNewFile{"new", [](const std::string&) { return false; }};

// Where every page of Eddy's begins. Only a file that begins so is overwritten by a page.
inline constexpr std::string_view kPageHead =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"generator\" content=\"eddy\"/>\n";
inline bool is_page_text(std::string_view text) {
  return text.starts_with(kPageHead);
}
extern const OutputKind kPageFile;

// Refuses to write a file over anything but an empty file or one of this kind. `where` begins the error.
// errors: IoError, also for what is no regular file (why_not_writable in tensor/files/atomic_file.h).
void refuse_foreign_file(const std::string& where, const std::string& file, const OutputKind& kind);

// Writes the file, or replaces one of its kind: replace_text_file, which looks again at what is there now.
// errors: as refuse_foreign_file and replace_text_file.
void write_output_file(const std::string& where, const std::string& file, std::string_view text,
                       const OutputKind& kind);

}  // namespace eddy::training
