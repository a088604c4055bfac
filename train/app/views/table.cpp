// The writers of a table.
#include "train/app/views/table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "tensor/base/format.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

using Cells = std::vector<std::string>;

// Returns the number of characters: bytes that begin one.
std::size_t width_of(const std::string& text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation));
}

// The header, where there is one, and the rows.
std::vector<Cells> lines_of(const Table& table) {
  std::vector<Cells> lines;
  if (!table.header.empty()) lines.push_back(table.header);
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  return lines;
}

// Returns the widths of the columns, each at least `least`.
// errors: ValueError when lines differ in length.
std::vector<std::size_t> widths_of(const std::vector<Cells>& lines, std::size_t least) {
  std::vector<std::size_t> widths(lines.empty() ? 0 : lines.front().size(), least);
  for (const Cells& line : lines) {
    if (line.size() != widths.size())
      fail<ValueError>("table: a row of {} cells below a head of {} (equal numbers)", line.size(),
                       widths.size());
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width_of(line[i]));
  }
  return widths;
}

// Calls visit(word, is_word) for each word of a text and each stretch of white space between them.
template <class Visit>
void visit_words(std::string_view text, const Visit& visit) {
  constexpr std::string_view kWhite = " \t\r\n";
  while (!text.empty()) {
    const bool white = kWhite.find(text.front()) != std::string_view::npos;
    const std::size_t end = white ? text.find_first_not_of(kWhite) : text.find_first_of(kWhite);
    const std::string_view part = text.substr(0, end);
    visit(part, !white);
    text.remove_prefix(part.size());
  }
}

constexpr std::size_t kLongestWord = 28;  // that a column of a narrow page holds

// Whether a text has a word, or a part of a path, that is too long: it may be broken anywhere.
bool has_long_word(std::string_view text) {
  bool has = false;
  visit_words(text, [&](std::string_view word, bool is_word) {
    for (std::size_t slash; (slash = word.find('/')) != std::string_view::npos; word.remove_prefix(slash + 1))
      has = has || slash > kLongestWord;
    has = has || (is_word && word.size() > kLongestWord);
  });
  return has;
}

// Returns a row of a table in HTML, of head cells ("th") or others ("td").
std::string row_html(const Cells& cells, const char* tag) {
  std::string html = "<tr>";
  for (const std::string& cell : cells) {
    // A number, or one with its unit: "264 B", "1m 00s".
    constexpr std::size_t kLongestNumber = 9;
    const bool number =
        !cell.empty() && (cell.find_first_not_of("0123456789 .+-e%") == std::string::npos ||
                          (cell[0] >= '0' && cell[0] <= '9' && cell.size() <= kLongestNumber));
    html += fmt::format("<{0}{1}>{2}</{0}>", tag,
                        number                ? " class=\"number\""
                        : has_long_word(cell) ? " class=\"long\""
                                              : "",
                        words_html(cell));
  }
  return html + "</tr>\n";
}

}  // namespace

std::vector<std::string> to_lines(const Table& table) {
  if (table.align.empty() || table.align.find_first_not_of("lr") != std::string::npos)
    fail<ValueError>("table: align is {:?} (l or r for each column)", table.align);
  std::vector<Cells> lines = lines_of(table);
  for (Cells& line : lines)
    for (std::string& cell : line) {
      cell = printable(cell);
      std::replace(cell.begin(), cell.end(), '\n', ' ');
    }
  const std::vector<std::size_t> widths = widths_of(lines, 0);
  std::vector<std::string> text;
  for (const Cells& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - width_of(line[i]), ' ');
      const bool left = table.align[std::min(i, table.align.size() - 1)] == 'l';
      row += (i == 0 ? "" : "  ") + (left ? line[i] + space : space + line[i]);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text.push_back(std::move(row));
  }
  return text;
}

std::string to_text(const Table& table, std::size_t indent) {
  std::string text;
  for (const std::string& line : to_lines(table)) text += std::string(indent, ' ') + line + '\n';
  return text;
}

std::string to_markdown(const Table& table) {
  const std::vector<Cells> lines = lines_of(table);
  const std::vector<std::size_t> widths = widths_of(lines, 3);
  std::string text;
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i)
      text += "| " + line[i] + std::string(widths[i] - width_of(line[i]) + 1, ' ');
    text += "|\n";
    if (&line != &lines.front()) continue;
    for (const std::size_t width : widths) text += "| " + std::string(width, '-') + ' ';
    text += "|\n";
  }
  return text;
}

std::string to_html(const Table& table) {
  std::string html = "<div class=\"scroll\"><table><tbody>\n";
  if (!table.header.empty()) html += row_html(table.header, "th");
  for (const Cells& cells : table.rows) html += row_html(cells, "td");
  return html + "</tbody></table></div>\n";
}

std::string words_html(std::string_view text) {
  std::string html;
  visit_words(text, [&](std::string_view word, bool is_word) {
    if (is_word && word.starts_with("--") && word.size() <= kLongestWord) {
      html += fmt::format("<span class=\"whole\">{}</span>", html_escape(word));
      return;
    }
    for (std::size_t slash;
         word.size() > kLongestWord / 2 && (slash = word.find('/')) != std::string_view::npos;
         word.remove_prefix(slash + 1))
      html += html_escape(word.substr(0, slash + 1)) + "<wbr/>";
    html += html_escape(word);
  });
  return html;
}

}  // namespace eddy::app
