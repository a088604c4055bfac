// Strict UTF-8, one character at a time: overlong forms, surrogates and values above U+10FFFF are invalid.
// Source: RFC 3629, section 4.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace eddy::training {

struct Utf8Char {
  char32_t code_point = 0;
  int bytes = 0;  // 1..4; 0 when the bytes at the offset are no valid character
};

// Whether a byte is one of a character's later bytes, 10xxxxxx.
inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u;
}

// The character that starts at `offset` (< text.size()).
Utf8Char utf8_at(std::string_view text, std::size_t offset);

// The number of bytes at the end of a text that begin a character and do not complete it.
std::size_t cut_utf8_bytes(std::string_view text);

// The offset of the first byte that is not UTF-8; the size of the text if all are.
std::size_t utf8_until(std::string_view text);

// Appends the UTF-8 form of a valid code point to `text`.
void append_utf8(std::string& text, char32_t code_point);

}  // namespace eddy::training
