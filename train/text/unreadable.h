// Texts that are not UTF-8: all of them at once, with the commands that convert them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/text/text_files.h"

namespace eddy::training {

struct Unreadable {
  std::string path, why;
  std::string
      encoding;  // what iconv is to convert it from, a guess where bytes do not tell; empty: it cannot
};

// Returns why a file cannot be read as text; nothing if it can. needs_utf8: whether the tokenizer takes only UTF-8.
// errors: IoError.
std::optional<Unreadable> why_unreadable(const TextFile& file, bool needs_utf8);

// Refuses files that cannot be read, of `all`.
// errors: FormatError, always; it names every file, and the command that converts them.
[[noreturn]] void fail_unreadable(const std::vector<Unreadable>& files, std::size_t all);

}  // namespace eddy::training
