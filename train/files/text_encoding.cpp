// Byte order marks, and UTF-16 and UTF-32 to UTF-8.
#include "train/files/text_encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "tensor/base/format.h"
#include "train/files/utf8.h"

namespace eddy {
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

// Whether a text without a mark reads as this encoding and holds no control characters but white space.
bool reads_as(std::string_view head, const TextEncoding& encoding) {
  const auto unit = static_cast<std::size_t>(encoding.unit);
  for (std::size_t at = 0; at + unit <= head.size(); at += unit) {
    const std::uint32_t c = unit_at(head, at, encoding);
    if (c > 0x10ffff || (c < 0x20 && (c < 0x09 || c > 0x0d))) return false;
  }
  return true;
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
  std::array<std::size_t, 4> zeros{};  // by the byte's place in a unit of four
  for (std::size_t at = 0; at < head.size(); ++at)
    if (head[at] == '\0') ++zeros[at % 4];
  const std::size_t even = zeros[0] + zeros[2], odd = zeros[1] + zeros[3], quads = head.size() / 4;
  for (const bool big : {false, true}) {
    const std::size_t high = big ? std::min(zeros[0], zeros[1]) : std::min(zeros[2], zeros[3]);
    const TextEncoding wide{big ? "UTF-32BE" : "UTF-32LE", 0, 4, big};
    if (quads == 0) break;
    if (high * 10 >= quads * 9 && reads_as(head, wide)) return wide;
    const TextEncoding pairs{big ? "UTF-16BE" : "UTF-16LE", 0, 2, big};
    const std::size_t empty = big ? even : odd, full = big ? odd : even;
    if (empty * 20 >= head.size() / 2 && empty > 20 * full && reads_as(head, pairs)) return pairs;
  }
  return {};
}

std::string decode_text(std::string bytes, const std::string& file) {
  const TextEncoding encoding = encoding_of(bytes);
  if (encoding.unit == 1) {
    bytes.erase(0, encoding.mark);
    return bytes;
  }
  if (encoding.mark == 0)
    fail<FormatError>(
        "file: {} looks like {} without a byte order mark (convert it to UTF-8: iconv -f {} -t UTF-8)", file,
        encoding.name, encoding.name);
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

}  // namespace eddy
