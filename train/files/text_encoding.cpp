// Byte order marks, and UTF-16 and UTF-32 to UTF-8.
#include "train/files/text_encoding.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "tensor/base/format.h"
#include "train/files/standard_input.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

constexpr std::size_t kHead = 4096;  // bytes that are looked at

// The unit of `size` bytes at `at`.
std::uint32_t unit_at(std::string_view bytes, std::size_t at, const TextEncoding& encoding) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(encoding.unit); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[at + i]);
    const std::size_t place = encoding.big_endian ? static_cast<std::size_t>(encoding.unit) - 1 - i : i;
    value |= static_cast<std::uint32_t>(byte) << (8 * place);
  }
  return value;
}

bool is_control(std::uint32_t c) {
  return c < 0x20 && (c < 0x09 || c > 0x0d);
}

// Whether bytes read as UTF-8 without control characters; NUL is none here, as what is looked for has many. The
// last character may be cut.
bool reads_as_utf8(std::string_view head) {
  for (std::size_t at = 0; at < head.size();) {
    const Utf8Char c = utf8_at(head, at);
    if (c.bytes == 0) return head.size() - at < 4;
    if (c.code_point != 0 && is_control(c.code_point)) return false;
    at += static_cast<std::size_t>(c.bytes);
  }
  return true;
}

// The script of a character as far as its block tells: Chinese, Japanese and Korean are one.
std::uint32_t script_of(std::uint32_t c) {
  const std::uint32_t block = c >> 8;
  const bool east_asian = (block >= 0x30 && block < 0xa0) || (block >= 0xac && block < 0xd8) || block == 0xff;
  return east_asian ? 0x30 : block;
}

// Whether bytes without a mark are a text in this encoding: without control characters, nearly all in one script and
// the block of spaces and line ends; where they could be UTF-8 too, nearly all in that block.
bool reads_as(std::string_view head, const TextEncoding& encoding, bool also_utf8) {
  const auto unit = static_cast<std::size_t>(encoding.unit);
  std::map<std::uint32_t, std::size_t> scripts;
  const std::size_t all = head.size() / unit;
  for (std::size_t i = 0; i < all; ++i) {
    const std::uint32_t c = unit_at(head, i * unit, encoding);
    if (c > 0x10ffff || is_control(c)) return false;
    ++scripts[script_of(c)];
  }
  const std::size_t latin = scripts[0];
  std::size_t most = 0;
  for (const auto& [script, count] : scripts)
    if (script != 0) most = std::max(most, count);
  constexpr std::size_t kLeast = 8;  // characters that show it
  if (all < kLeast || latin == 0) return false;
  return also_utf8 ? latin * 10 >= all * 9 : latin * 100 >= all && (latin + most) * 10 >= all * 9;
}

}  // namespace

TextEncoding encoding_of(std::string_view head) {
  using namespace std::string_view_literals;
  head = head.substr(0, kHead);
  if (head.starts_with("\xef\xbb\xbf"sv)) return {"UTF-8", 3, 1, false};
  if (head.starts_with("\xff\xfe\0\0"sv)) return {"UTF-32LE", 4, 4, false};
  if (head.starts_with("\0\0\xfe\xff"sv)) return {"UTF-32BE", 4, 4, true};
  if (head.starts_with("\xff\xfe"sv)) return {"UTF-16LE", 2, 2, false};
  if (head.starts_with("\xfe\xff"sv)) return {"UTF-16BE", 2, 2, true};
  if (head.find('\0') == std::string_view::npos) return {};  // a space in two bytes has one
  const bool also_utf8 = reads_as_utf8(head);
  for (const TextEncoding& wide : {TextEncoding{"UTF-32LE", 0, 4, false},
                                   {"UTF-32BE", 0, 4, true},
                                   {"UTF-16LE", 0, 2, false},
                                   {"UTF-16BE", 0, 2, true}})
    if (reads_as(head, wide, also_utf8)) return wide;
  return {};
}

std::string conversion_line(const std::string& encoding, const std::vector<std::string>& paths) {
  const std::string convert = fmt::format("iconv -f {} -t UTF-8", encoding);
  if (paths.size() == 1 && paths[0] == kInputName) return convert;  // on its way
  if (paths.size() == 1) {
    const std::string path = shell_quoted(paths[0]), made = shell_quoted(paths[0] + ".new");
    return fmt::format("{} {} > {} && mv {} {}", convert, path, made, made, path);
  }
  std::string names;
  for (const std::string& path : paths) names += " " + shell_quoted(path);
  return fmt::format("for f in{}; do {} \"$f\" > \"$f.new\" && mv \"$f.new\" \"$f\"; done", names, convert);
}

std::string decode_text(std::string bytes, const std::string& file) {
  const TextEncoding encoding = encoding_of(bytes);
  if (encoding.unit == 1) {
    bytes.erase(0, encoding.mark);
    return bytes;
  }
  if (encoding.mark == 0)
    fail<FormatError>("file: {} looks like {} without a byte order mark (convert it to UTF-8: {})", file,
                      encoding.name, conversion_line(encoding.name, {file}));
  const auto unit = static_cast<std::size_t>(encoding.unit);
  const auto refuse = [&](std::size_t at, const char* what) {
    fail<FormatError>("file: {} begins as {} and is not: {} at byte {} (save it as UTF-8)", file,
                      encoding.name, what, at);
  };
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t at = encoding.mark; at < bytes.size(); at += unit) {
    const std::size_t begin = at;
    if (bytes.size() - at < unit) refuse(begin, "half a character");
    char32_t c = unit_at(bytes, at, encoding);
    if (encoding.unit == 2 && c >= 0xd800 && c < 0xdc00) {
      at += unit;
      const std::uint32_t low = bytes.size() - at < unit ? 0 : unit_at(bytes, at, encoding);
      if (low < 0xdc00 || low > 0xdfff) refuse(begin, "half a pair of surrogates");
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) refuse(begin, "no character");
    append_utf8(text, c);
  }
  return text;
}

}  // namespace eddy::training
