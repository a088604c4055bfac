// A table of text: for a terminal, in Markdown, and in HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace eddy::app {

// On a terminal; elsewhere columns are as their page wants them.
enum class TableAlign {
  left,     // all columns
  numbers,  // the first column to the left, the others to the right
};

struct Table {
  std::vector<std::string> header{};  // empty: none
  std::vector<std::vector<std::string>> rows{};
  TableAlign align = TableAlign::left;
};

// Returns the table in aligned columns, a line for each row; cells are made safe for a terminal (`printable` in
// train/words/human_text.h), each in one line.
// errors: ValueError when rows differ in length.
std::string to_text(const Table& table);
// Returns it as a table of Markdown with aligned columns.
// errors: as to_text.
std::string to_markdown(const Table& table);
// Returns it as HTML, in a frame that scrolls; the script and the style sheet of a page know it. Rows may differ in
// length.
std::string to_html(const Table& table);

// Returns text escaped, with flags in one piece, since a browser would break "--run" behind a hyphen, and with places
// to break long paths behind their slashes.
std::string words_html(std::string_view text);

}  // namespace eddy::app
