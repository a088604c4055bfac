// Strict UTF-8.
// Source: RFC 3629, section 4 (the table of well-formed byte sequences).
#include "train/words/utf8.h"

#include <algorithm>

namespace eddy::training {

Utf8Char utf8_at(std::string_view text, std::size_t offset) {
  const auto byte = [&](int i) {
    return static_cast<unsigned char>(text[offset + static_cast<std::size_t>(i)]);
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {static_cast<char32_t>(lead), 1};
  const int bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - offset < static_cast<std::size_t>(bytes)) return {};
  char32_t code_point = lead & (0x7fu >> bytes);
  for (int i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {};
    code_point = (code_point << 6) | (byte(i) & 0x3fu);
  }
  const char32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  const bool surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < least || code_point > 0x10ffff || surrogate) return {};
  return {code_point, bytes};
}

std::size_t cut_utf8_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const char last = text[text.size() - back];
    if (is_continuation(last)) continue;
    const auto first = static_cast<unsigned char>(last);
    const std::size_t length = first >= 0xf0u ? 4 : first >= 0xe0u ? 3 : first >= 0xc0u ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

std::size_t utf8_until(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Char c = utf8_at(text, at);
    if (c.bytes == 0) break;
    at += static_cast<std::size_t>(c.bytes);
  }
  return at;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto add = [&](char32_t bits) {
    text.push_back(static_cast<char>(static_cast<unsigned char>(bits)));
  };
  if (code_point < 0x80) return add(code_point);
  const int bytes = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  // The first byte begins with as many ones as there are bytes, each other one with 10, then six bits.
  add((0xff00u >> bytes & 0xff) | code_point >> 6 * (bytes - 1));
  for (int i = bytes - 2; i >= 0; --i) add(0x80 | (code_point >> 6 * i & 0x3f));
}

}  // namespace eddy::training
