// Looking for the first byte that is not UTF-8, and guessing what the text was written in.
#include "train/text/unreadable.h"

#include <algorithm>
#include <map>

#include "tensor/base/format.h"
#include "train/files/file_kind.h"
#include "train/files/standard_input.h"
#include "train/files/text_encoding.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

// Whether at least a fifth of all is counted.
bool is_a_fifth(std::size_t count, std::size_t all) {
  return count * 5 >= all;
}

// The encoding of two bytes for each character of Chinese, Japanese or Korean that a text most likely has; "" if it has
// none. The first byte of a pair lies beyond ASCII; in the forms of EUC both do. Japanese has kana, whose rows are few,
// and the rows of Hangul and of the common characters of Big5 are those of their standards.
std::string two_byte_encoding(std::string_view text) {
  std::size_t pairs = 0, kana_euc = 0, kana_sjis = 0, hangul = 0, big5_rows = 0, low_rows = 0,
              low_seconds = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) continue;
    if (++at == text.size()) return "";
    const auto second = static_cast<unsigned char>(text[at]);
    if (first == 0x80 || first == 0xff || second < 0x40 || second == 0x7f || second == 0xff) return "";
    low_rows += first < 0xa1 ? 1 : 0;
    low_seconds += second < 0xa1 ? 1 : 0;
    if (first >= 0xa1 && first <= 0xa3) continue;  // punctuation in most of them
    ++pairs;
    kana_euc += first == 0xa4 || first == 0xa5 ? 1 : 0;
    kana_sjis += first == 0x82 || first == 0x83 ? 1 : 0;
    hangul += first >= 0xb0 && first <= 0xc8 ? 1 : 0;
    big5_rows += first >= 0xa4 && first <= 0xc6 ? 1 : 0;
  }
  constexpr std::size_t kLeast =
      8;  // pairs that show it: the words of a short text may all have even lengths
  if (pairs < kLeast) return "";
  if (low_rows + low_seconds == 0 && is_a_fifth(kana_euc, pairs)) return "EUC-JP";
  if (low_rows + low_seconds == 0 && hangul * 20 >= pairs * 19) return "EUC-KR";
  if (is_a_fifth(kana_sjis, pairs)) return "SHIFT_JIS";
  if (low_rows == 0 && is_a_fifth(low_seconds, pairs) && big5_rows * 5 >= pairs * 4) return "BIG5";
  return "GB18030";
}

// The encoding that a text most likely has. Where most letters lie beyond ASCII it is East Asian or Cyrillic; bytes
// that Windows-1252 does not define leave Latin-1, which defines all.
std::string guessed_encoding(std::string_view text) {
  std::size_t high = 0, letters = 0, capitals_of_koi8 = 0, small_of_866 = 0;
  bool undefined = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    high += byte >= 0x80 ? 1 : 0;
    capitals_of_koi8 += byte >= 0xe0 ? 1 : 0;  // small letters in Windows-1251
    small_of_866 += byte >= 0xa0 && byte <= 0xaf ? 1 : 0;
    letters += (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z' ? 1 : 0;
    undefined = undefined || byte == 0x81 || byte == 0x8d || byte == 0x8f || byte == 0x90 || byte == 0x9d;
  }
  if (high > letters) {
    const std::string wide = two_byte_encoding(text);
    if (!wide.empty()) return wide;
    if (is_a_fifth(small_of_866, high)) return "CP866";
    return is_a_fifth(capitals_of_koi8, high) ? "WINDOWS-1251" : "KOI8-R";
  }
  return undefined ? "ISO-8859-1" : "WINDOWS-1252";
}

// Whether a text is UTF-8 but for a few bytes: other encodings seldom look so.
bool is_damaged_utf8(std::string_view text) {
  std::size_t characters = 0, wrong = 0;
  for (std::size_t at = 0;;) {
    const std::size_t end = at + utf8_until(text.substr(at));
    characters += static_cast<std::size_t>(std::count_if(
        text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(end),
        [](char c) { return static_cast<unsigned char>(c) >= 0xc2; }));
    if (end == text.size()) return characters > 4 * wrong;
    ++wrong;
    at = end + 1;
  }
}

}  // namespace

std::optional<Unreadable> why_unreadable(const TextFile& file, const std::string& bytes, bool needs_utf8) {
  const std::string path = shown_path(file);
  const TextEncoding encoding = encoding_of(bytes);
  if (encoding.unit > 1) {
    if (encoding.mark == 0)
      return Unreadable{path, fmt::format("looks like {} without a byte order mark", encoding.name),
                        encoding.name, false};
    try {
      static_cast<void>(decode_text(bytes, path));
    } catch (const FormatError& error) {
      return Unreadable{path, error.what(), "", false};
    }
    return std::nullopt;
  }
  if (!needs_utf8) return std::nullopt;
  const std::string_view text = std::string_view(bytes).substr(encoding.mark);
  const std::size_t good = utf8_until(text);
  if (good == text.size()) return std::nullopt;
  // No encoding of one byte for each character has it in a text, and there is nothing to convert.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    return Unreadable{
        path,
        fmt::format("it holds bytes of zero, the first at offset {}, as programs and other binary files do",
                    zero),
        "", false};
  if (const auto controls =
          static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_binary_control));
      controls * 50 >= text.size())
    return Unreadable{
        path,
        fmt::format("{} of its {} bytes are control characters, as in packed and other binary files",
                    controls, text.size()),
        "", false};
  if (is_damaged_utf8(text)) {
    constexpr std::size_t kLongest = 3;  // bytes of a character that lacks its end
    if (text.size() - good <= kLongest) {
      const std::size_t cut = encoding.mark + good;
      const std::string file_name = shell_quoted(path), made = shell_quoted(path + ".new");
      return Unreadable{path, fmt::format("it ends within a character, at byte {}", cut), "", true,
                        file.path == kStandardInput
                            ? fmt::format("cut it there: head -c {}", cut)
                            : fmt::format("cut it there: head -c {} {} > {} && mv {} {}", cut, file_name,
                                          made, made, file_name)};
    }
    return Unreadable{path,
                      fmt::format("byte 0x{:02x} at offset {}, in a text that is UTF-8 otherwise",
                                  static_cast<unsigned char>(text[good]), good),
                      "", true,
                      fmt::format("grep -naxv '.*' {} shows the lines",
                                  file.path == kStandardInput ? "FILE" : shell_quoted(path))};
  }
  return Unreadable{path,
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
                         encoding, printable(conversion_line(encoding, paths)));
  for (const Unreadable& file : files)
    if (!file.mend.empty()) lines += "; " + printable(file.mend);
  if (std::all_of(files.begin(), files.end(), [](const Unreadable& file) { return file.byte_reads; }))
    lines = "; data.tokenizer byte takes any bytes" + lines;
  const std::string advice = lines.empty() ? "save the text in it as UTF-8" : lines.substr(2);
  if (files.size() == 1)
    fail<FormatError>("data: {} is not UTF-8: {} ({})", printable(files[0].path), files[0].why, advice);
  fail<FormatError>("data: {} of {} files are not UTF-8: {} ({})", files.size(), all, named, advice);
}

}  // namespace eddy::training
