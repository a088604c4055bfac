// A table of text: for a terminal, in Markdown, and in HTML.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace eddy::app {

struct Table {
  std::vector<std::string> header{};  // empty: none
  std::vector<std::vector<std::string>> rows{};
  // How columns stand on a terminal, a letter for each: l to the left, r to the right. The last letter holds for those
  // behind it too: "lr" is a column of names before columns of numbers. Elsewhere columns are as their page wants them.
  std::string align = "l";
};

// Returns the table in aligned columns, a line for each row; cells are made safe for a terminal (`printable` in
// train/words/human_text.h), each in one line. Each line begins with `indent` spaces.
// errors: ValueError when rows differ in length, or when `align` has other letters or none.
std::string to_text(const Table& table, std::size_t indent = 0);
// Returns those lines one by one, the header first, for a list with more text below a row.
// errors: as to_text.
std::vector<std::string> to_lines(const Table& table);
// Returns it as a table of Markdown with aligned columns.
// errors: ValueError when rows differ in length.
std::string to_markdown(const Table& table);
// Returns it as HTML, in a frame that scrolls; the script and the style sheet of a page know it. Rows may differ in
// length.
std::string to_html(const Table& table);

// Returns text escaped, with flags in one piece, since a browser would break "--run" behind a hyphen, and with places
// to break long paths behind their slashes.
std::string words_html(std::string_view text);

}  // namespace eddy::app
