// Files of text as UTF-8. A byte order mark at the beginning of a file names its encoding and is dropped; UTF-16
// and UTF-32 behind one become UTF-8. Without a mark a text is what its bytes are: UTF-8, or one byte for each
// character.
// Source: RFC 2781, section 3 (UTF-16); the Unicode Standard, section 3.10 (byte order marks).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace eddy::training {

struct TextEncoding {
  const char* name = "UTF-8";  // UTF-8, UTF-16LE, UTF-16BE, UTF-32LE, UTF-32BE
  std::size_t mark = 0;        // bytes of the mark; 0 without one
  int unit = 1;                // bytes: 1, 2 or 4
  bool big_endian = false;
};

// The encoding that the first bytes of a file show: by a mark, or as the text in UTF-16 or UTF-32 that lacks one.
TextEncoding encoding_of(std::string_view head);

// The command line that converts files from an encoding to UTF-8, in their places.
std::string conversion_line(const std::string& encoding, const std::vector<std::string>& paths);

// The bytes of a file as UTF-8 without a mark; errors call them `file`.
// errors: FormatError for UTF-16 and UTF-32 without a mark, and for what they do not allow.
std::string decode_text(std::string bytes, const std::string& file);

}  // namespace eddy::training
