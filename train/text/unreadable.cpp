// Looking for the first byte that is not UTF-8, and guessing what the text was written in.
#include "train/text/unreadable.h"

#include <algorithm>
#include <map>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "train/files/text_encoding.h"
#include "train/files/utf8.h"
#include "train/page/human_text.h"

namespace eddy {
namespace {

// The encoding of one byte for each character that a text most likely has. Where most letters lie beyond ASCII it is
// Cyrillic; bytes that Windows-1252 does not define leave Latin-1, which defines all.
const char* guessed_encoding(std::string_view text) {
  std::size_t high = 0, letters = 0;
  bool undefined = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    high += byte >= 0x80 ? 1 : 0;
    letters += (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z' ? 1 : 0;
    undefined = undefined || byte == 0x81 || byte == 0x8d || byte == 0x8f || byte == 0x90 || byte == 0x9d;
  }
  if (high > letters) return "WINDOWS-1251";
  return undefined ? "ISO-8859-1" : "WINDOWS-1252";
}

// The offset of the first byte that is not UTF-8; the size of the text if all are.
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

// The command that converts files from one encoding.
std::string iconv_line(const std::string& encoding, const std::vector<std::string>& paths) {
  if (paths.size() == 1)
    return fmt::format("iconv -f {} -t UTF-8 {} > {}", encoding, shell_quoted(paths[0]),
                       shell_quoted(paths[0] + ".utf8.txt"));
  std::string names;
  for (const std::string& path : paths) names += " " + shell_quoted(path);
  return fmt::format("for f in{}; do iconv -f {} -t UTF-8 \"$f\" > \"$f.new\" && mv \"$f.new\" \"$f\"; done",
                     names, encoding);
}

}  // namespace

std::optional<Unreadable> why_unreadable(const TextFile& file, bool needs_utf8) {
  if (file.bytes && !needs_utf8) return std::nullopt;
  std::string bytes = InputFile(file.path).text();
  const TextEncoding encoding = encoding_of(bytes);
  if (encoding.unit > 1 && !file.bytes) {
    if (encoding.mark == 0)
      return Unreadable{file.path, fmt::format("looks like {} without a byte order mark", encoding.name),
                        encoding.name};
    try {
      static_cast<void>(decode_text(std::move(bytes), file.path));
    } catch (const FormatError& error) {
      return Unreadable{file.path, error.what(), ""};
    }
    return std::nullopt;
  }
  if (!needs_utf8) return std::nullopt;
  const std::size_t mark = file.bytes ? 0 : encoding.mark;
  const std::string_view text = std::string_view(bytes).substr(mark);
  const std::size_t good = utf8_until(text);
  if (good == text.size()) return std::nullopt;
  // No encoding of one byte for each character has it in a text, and there is nothing to convert.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    return Unreadable{
        file.path,
        fmt::format("it holds bytes of zero, the first at offset {}, as programs and other binary files do",
                    zero),
        ""};
  return Unreadable{file.path,
                    fmt::format("byte 0x{:02x} at offset {}", static_cast<unsigned char>(text[good]), good),
                    guessed_encoding(text)};
}

void fail_unreadable(const std::vector<Unreadable>& files, std::size_t all) {
  std::map<std::string, std::vector<std::string>> by_encoding;
  std::string named, lines;
  for (const Unreadable& file : files) {
    named += fmt::format("{}{} ({})", named.empty() ? "" : ", ", printable(file.path), file.why);
    if (!file.encoding.empty()) by_encoding[file.encoding].push_back(file.path);
  }
  for (const auto& [encoding, paths] : by_encoding)
    lines += fmt::format("; {} from {}: {}", plural(paths.size(), "to convert it", "to convert them"),
                         encoding, printable(iconv_line(encoding, paths)));
  if (files.size() == 1)
    fail<FormatError>("data: {} is not UTF-8: {} (data.tokenizer byte takes any bytes{})",
                      printable(files[0].path), files[0].why, lines);
  fail<FormatError>("data: {} of {} files are not UTF-8: {} (data.tokenizer byte takes any bytes{})",
                    files.size(), all, named, lines);
}

}  // namespace eddy
