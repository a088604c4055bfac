// Texts that are not UTF-8: all of them at once, with the commands that convert them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/text/text_files.h"

namespace eddy::training {

struct Unreadable {
  std::string path, why;
  // What iconv is to convert it from, a guess where bytes do not tell; empty: it cannot.
  std::string encoding;
  bool byte_reads = true;  // whether it is a text, which the tokenizer byte takes
  std::string mend{};      // another way to make it readable
};

// Returns why a file with these bytes cannot be read as text; nothing if it can. needs_utf8: whether the tokenizer
// takes only UTF-8.
std::optional<Unreadable> why_unreadable(const TextFile& file, const std::string& bytes, bool needs_utf8);

// Refuses files that cannot be read, of `all`.
// errors: FormatError, always; it names every file, and the command that converts them.
[[noreturn]] void fail_unreadable(const std::vector<Unreadable>& files, std::size_t all);

}  // namespace eddy::training
